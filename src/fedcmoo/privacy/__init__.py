"""Privacy and robustness: clipping, noise, accounting, secure sums and robust means, as stages of the channel.

Needs the extra `privacy`.
"""

from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import DifferentialPrivacy
from fedcmoo.privacy.robust import GeometricMedian, TrimmedMean
from fedcmoo.privacy.secure import Secure

__all__ = ["Clip", "DifferentialPrivacy", "GeometricMedian", "Secure", "TrimmedMean"]
