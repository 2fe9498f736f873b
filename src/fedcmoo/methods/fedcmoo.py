"""FedCMOO: federated communication-efficient multi-objective optimization (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from fedcmoo.contributions import Contribution
from fedcmoo.gram import GRAMS, Gram, Sketch, check_gram
from fedcmoo.gram.base import GRAM_SHARE
from fedcmoo.methods.base import Method, reweigh, weights_message
from fedcmoo.rounds import Ask, Round, Server
from fedcmoo.validation import at_least_one
from fedcmoo.weights import WEIGHTS, FindWeights, Rule, check_rule


@dataclass(frozen=True, kw_only=True)
class FedCMOO(Method):
    """Two phases a round: estimate the Gram matrix of the objectives' gradients, then train on the weighted loss.

    Args:
        gram: ApproxGramJacobian: how the server learns G.
        weights: FindWeights, or any other rule that turns G into weights; torchjd's objects too.
        gram_every: rounds from one estimate of G to the next; in between, the weights stay.

    Deviation: the paper's clients send a randomized SVD (`OneWay()` or `TwoWay()`); the default here is a sketch, which
    is more exact at a tenth of the upload (`fedcmoo bench gram`).

    References:
        Askin, Sharma, Joshi and Joe-Wong. Federated Communication-Efficient Multi-Objective Optimization. AISTATS 2025.
    """

    title: ClassVar[str] = "two phases: weights from a Gram matrix, then local steps on the weighted loss"

    gram: Gram = field(default=Sketch(), metadata={"registry": GRAMS})
    weights: Rule = field(default=FindWeights(), metadata={"registry": WEIGHTS})
    gram_every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(gram_every=self.gram_every)
        check_gram(self.gram)
        check_rule(self.weights)

    def within(self, upload: float) -> Self:
        return replace(super().within((1 - GRAM_SHARE) * upload), gram=self.gram.within(GRAM_SHARE * upload))

    def contributions(self) -> Mapping[str, Contribution]:
        return {
            **self.gram.contributions(self.batch_size),
            "train": self.training(reuse_jacobian=self.gram.asks_cohort),
            "train-alone": self.training(reuse_jacobian=False),
        }

    def round(self, server: Server) -> Round:
        # Line 4: the cohort is drawn before the round starts, and the first ask brings it the model x.
        train = "train-alone"
        if server.round % self.gram_every == 0:
            G, _ = yield from self.gram.estimate(server)  # line 5: G ≈ ∇F(x)^T ∇F(x)
            reweigh(server, self.weights, G)  # line 6: w <- FindWeights(w, G)
            train = "train"
        sums = (yield Ask({train: weights_message(server.w)})).part(train)  # lines 7 to 13: K steps on Σ_k w_k f_{i,k}
        server.descend(sums.mean("update"), sums, self.server_lr)  # line 14: x <- x - η_s mean_i (x - x_i)
