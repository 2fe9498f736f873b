"""The registry of stages of the channel, which a configuration selects by name (`--set stage.name=...`)."""

from fedcmoo.contributions import Stage
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.robust import ROBUST

STAGES: dict[str, type[Stage]] = {"clip": Clip, **ROBUST}
"""All stages by name. Those that have a setting of their own (`clip`, `robust`) are here to be combined with it."""
