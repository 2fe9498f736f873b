"""Gram estimators: how the server learns the M x M Gram matrix of the objectives' gradients, and what it costs."""

from fedcmoo.gram.base import Estimate, Gram
from fedcmoo.gram.exact import Exact

GRAMS: dict[str, type[Gram]] = {"exact": Exact}

__all__ = ["GRAMS", "Estimate", "Exact", "Gram"]
