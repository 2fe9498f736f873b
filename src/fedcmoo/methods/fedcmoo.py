"""FedCMOO: federated communication-efficient multi-objective optimization (Algorithm 1)."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from fedcmoo.contributions import Contribution
from fedcmoo.gram import GRAMS, Gram, Sketch, check_gram, one_phase
from fedcmoo.gram.base import GRAM_SHARE
from fedcmoo.methods.base import WeightedLoss, reweigh
from fedcmoo.methods.one_trip import Trips, check_trips, take_last_gram, train_and_measure
from fedcmoo.rounds import Ask, Round, Server
from fedcmoo.settings import Named, registered
from fedcmoo.sums import Sums
from fedcmoo.validation import at_least_one
from fedcmoo.weights import WEIGHTS, AtLeastEqual, Rule, check_rule


@dataclass(frozen=True, kw_only=True)
class FedCMOO(WeightedLoss):
    """FedCMOO, with two phases per round: estimate the Gram matrix of the objectives' gradients, then train on the
    weighted loss.

    Args:
        gram: ApproxGramJacobian: the estimator of G.
        weights: the rule that turns G into weights; torchjd's objects also work. `FindWeights()` is the paper's.
        gram_every: the number of rounds between estimates of G; the weights stay the same in between.
        gram_batch_size: the batch size of phase one, in which clients compute M gradients. None for `batch_size`; these
            gradients then also serve the first local step, unlike with another size.
        trips: 2 as in the paper; 1 for rounds of a single trip, with weights from the previous round's G. 1 requires an
            estimator with one phase: all except the two-way and the unbiased ones.

    Deviation: the paper's clients send a randomized SVD (`OneWay()` or `TwoWay()`); the default here is a sketch, which
    is more accurate than `OneWay()` with a tenth of the upload and about as accurate with a hundredth, the default
    (`fedcmoo bench gram`). The paper's weights are those of `FindWeights()`, which leave objectives with large
    gradients untrained; the default here is `AtLeastEqual()`, which never gives an objective less weight than FedAvg
    (`fedcmoo bench weights`). The presets of the paper's problems name `FindWeights`.

    References:
        Askin, Sharma, Joshi and Joe-Wong. Federated Communication-Efficient Multi-Objective Optimization. AISTATS 2025.
    """

    title: ClassVar[str] = "two phases: weights from a Gram matrix, then local steps on the weighted loss"

    gram: Named[Gram] = registered(Sketch(), GRAMS)
    weights: Named[Rule] = registered(AtLeastEqual(), WEIGHTS)
    gram_every: int = 1
    gram_batch_size: int | None = None
    trips: Trips = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(gram_every=self.gram_every, gram_batch_size=self.gram_batch_size)
        check_gram(self.gram)
        check_trips(self.trips, self.gram)
        check_rule(self.weights)

    def within(self, upload: float) -> Self:
        return replace(super().within((1 - GRAM_SHARE) * upload), gram=self.gram.within(GRAM_SHARE * upload))

    def gradients(self, M: int) -> int:
        return M + self.local_steps

    def contributions(self) -> Mapping[str, Contribution]:
        same_batch = self.gram_batch_size in (None, self.batch_size)
        return {
            **self.gram_contributions,
            "train": self.training(reuse_jacobian=self.gram.asks_cohort and same_batch),
            "train-alone": self.training(reuse_jacobian=False),
        }

    @property
    def gram_contributions(self) -> Mapping[str, Contribution]:
        """The contributions of clients to G."""
        return self.gram.contributions(self.gram_batch_size or self.batch_size)

    def releases(self, round: int) -> Sequence[str]:
        if not self.gram.asks_cohort:
            raise ValueError(
                f"the estimator of G must ask the round's cohort, but {type(self.gram).__name__} asks others"
            )
        if round % self.gram_every:
            return ("train-alone",)
        return (*self.gram_contributions, "train")

    def round(self, server: Server) -> Round:
        # Line 4: the cohort is drawn before the round starts, and the first ask sends it the model x.
        due = server.round % self.gram_every == 0
        train = "train" if due else "train-alone"
        if self.trips == 1:
            sums = yield from self.one_trip(server, due)
        else:
            if due:
                G, _ = yield from self.gram.estimate(server)  # line 5: G ≈ ∇F(x)^T ∇F(x)
                reweigh(server, self.weights, G)  # line 6: w <- FindWeights(w, G), or another rule
            sums = yield Ask({train: self.training_message(server)})  # lines 7 to 13: K steps on Σ_k w_k f_{i,k}
        self.finish(server, sums.part(train))  # line 14: x <- x - η_s mean_i (x - x_i)

    def one_trip(self, server: Server, due: bool) -> Generator[Ask, Sums, Sums]:
        """Run lines 5 to 13 with one ask: the weights come from the last G, and a new G from the clients that train."""
        G = take_last_gram(server)
        if G is not None:
            reweigh(server, self.weights, G)
            server.G = None  # it is in the history already
        if due:
            return (yield from train_and_measure(server, self.training_message(server), one_phase(self.gram)))
        return (yield Ask({"train-alone": self.training_message(server)}))
