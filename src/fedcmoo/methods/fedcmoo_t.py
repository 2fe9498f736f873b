"""FedCMOO-T: the version of FedCMOO that the convergence theorem is about (appendix F.2)."""

from dataclasses import dataclass
from typing import ClassVar

from fedcmoo.gram import GRAMS, Gram, Unbiased
from fedcmoo.methods.fedcmoo import FedCMOO
from fedcmoo.settings import Named, registered
from fedcmoo.weights import WEIGHTS, FindWeights, Rule


@dataclass(frozen=True, kw_only=True)
class FedCMOOT(FedCMOO):
    """FedCMOO with an unbiased Gram matrix from two separate cohorts, and one step w <- P(w - β G w) per round.

    The theorem takes β = 1 / (M sqrt(T)) for T rounds, and G without scaling; the default is for two objectives and a
    hundred rounds.

    Args:
        gram: ApproxGramJacobian-T.
        weights: FindWeights with K = 1; set its beta.

    References:
        Askin, Sharma, Joshi and Joe-Wong. Federated Communication-Efficient Multi-Objective Optimization. AISTATS 2025.
    """

    title: ClassVar[str] = "FedCMOO as in the theorem: an unbiased Gram matrix, one weight step a round"
    display_name = "FedCMOO-T"

    gram: Named[Gram] = registered(Unbiased(), GRAMS)
    weights: Named[Rule] = registered(FindWeights(beta=0.05, iterations=1, scale_free=False), WEIGHTS)
