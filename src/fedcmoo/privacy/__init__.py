"""Privacy: clipping, noise, accounting and secure sums.

Needs the extra `privacy`.
"""

from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import DifferentialPrivacy

__all__ = ["Clip", "DifferentialPrivacy"]
