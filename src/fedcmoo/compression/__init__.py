"""Compressors: matrix -> payload -> matrix within a budget, and the sketch that preserves inner products."""

from fedcmoo.compression.base import NUMBER, Compressor, Shape, budget_bytes, check_budget
from fedcmoo.compression.count_sketch import CountSketch
from fedcmoo.compression.identity import Identity
from fedcmoo.compression.quantizer import Quantizer
from fedcmoo.compression.random_mask import RandomMask
from fedcmoo.compression.randomized_svd import RandomizedSVD
from fedcmoo.compression.rotated import Rotated
from fedcmoo.compression.shared_grid import SharedGrid
from fedcmoo.compression.top_k import TopK

COMPRESSORS: dict[str, type[Compressor]] = {
    "randomized-svd": RandomizedSVD,
    "top-k": TopK,
    "random-mask": RandomMask,
    "quantizer": Quantizer,
    "rotated": Rotated,
    "identity": Identity,
}

__all__ = [
    "COMPRESSORS",
    "NUMBER",
    "Compressor",
    "CountSketch",
    "Identity",
    "Quantizer",
    "RandomMask",
    "RandomizedSVD",
    "Rotated",
    "Shape",
    "SharedGrid",
    "TopK",
    "budget_bytes",
    "check_budget",
]
