"""Gram estimators, with which the server learns the M x M Gram matrix of the objectives' gradients."""

from fedcmoo.gram.base import JACOBIAN, Gram, OnePhase, check_gram, gram_matrix, one_phase
from fedcmoo.gram.exact import Exact
from fedcmoo.gram.one_way import OneWay
from fedcmoo.gram.sketch import Sketch
from fedcmoo.gram.sum_of_grams import SumOfGrams
from fedcmoo.gram.two_way import TwoWay, TwoWayAsRun
from fedcmoo.gram.unbiased import Unbiased

GRAMS: dict[str, type[Gram]] = {
    "sketch": Sketch,
    "one-way": OneWay,
    "two-way": TwoWay,
    "two-way-as-run": TwoWayAsRun,
    "sum-of-grams": SumOfGrams,
    "unbiased": Unbiased,
    "exact": Exact,
}

__all__ = [
    "GRAMS",
    "JACOBIAN",
    "Exact",
    "Gram",
    "OnePhase",
    "OneWay",
    "Sketch",
    "SumOfGrams",
    "TwoWay",
    "TwoWayAsRun",
    "Unbiased",
    "check_gram",
    "gram_matrix",
    "one_phase",
]
