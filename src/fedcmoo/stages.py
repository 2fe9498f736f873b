"""The registry of stages of the channel, which a configuration selects by name (`--set stage.name=...`)."""

from fedcmoo.contributions import Stage
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.robust import ROBUST

STAGES: dict[str, type[Stage]] = {"clip": Clip, **ROBUST}
"""All stages by name. Clipping and robust means also have the settings `clip` and `robust`; as `stage`, clipping can be
given all its arguments."""
