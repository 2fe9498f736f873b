"""Type aliases for the server's small vectors and matrices; shapes are given in docstrings."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
