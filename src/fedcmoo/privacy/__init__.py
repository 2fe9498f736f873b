"""Privacy and robustness: clipping, noise, accounting, secure sums and robust means, as stages of the channel.

Needs the extra `privacy`.
"""

from fedcmoo.contributions import Stage
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import DifferentialPrivacy
from fedcmoo.privacy.robust import ROBUST, GeometricMedian, TrimmedMean
from fedcmoo.privacy.secure import Secure

STAGES: dict[str, type[Stage]] = {"clip": Clip, **ROBUST}
"""Stages of the channel by name, for configurations."""

__all__ = ["STAGES", "Clip", "DifferentialPrivacy", "GeometricMedian", "Secure", "TrimmedMean"]
