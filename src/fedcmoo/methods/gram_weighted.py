"""The base class of methods whose weights come from a Gram matrix of the objectives' gradients."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from fedcmoo.contributions import Contribution
from fedcmoo.gram import GRAMS, Gram, Sketch, check_gram, one_phase
from fedcmoo.gram.base import GRAM_SHARE, Estimate
from fedcmoo.methods.base import LocalTraining, WeightedLoss
from fedcmoo.methods.one_trip import Trips, check_trips, train_and_measure
from fedcmoo.rounds import Ask, Server
from fedcmoo.settings import Named, registered
from fedcmoo.sums import Sums
from fedcmoo.validation import at_least_one

TRAIN, TRAIN_ALONE = "train", "train-alone"
"""The names of local training in rounds with an estimate of G, whose first step may reuse phase one's gradients, and in
rounds without."""


@dataclass(frozen=True, kw_only=True)
class GramWeighted(WeightedLoss):
    """A method with two phases per round: estimate the Gram matrix G, then train on the weighted loss.

    Args:
        gram: ApproxGramJacobian: the estimator of G.
        gram_every: the number of rounds between estimates of G; the weights stay the same in between.
        gram_batch_size: the batch size of phase one, in which clients compute M gradients. None for `batch_size`; these
            gradients then also serve the first local step, unlike with another size.
        trips: 2 as in the paper; 1 for rounds of a single trip, with weights from the previous round's G. 1 requires an
            estimator with one phase: all except the two-way and the unbiased ones.
    """

    gram: Named[Gram] = registered(Sketch(), GRAMS)
    gram_every: int = 1
    gram_batch_size: int | None = None
    trips: Trips = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(gram_every=self.gram_every, gram_batch_size=self.gram_batch_size)
        check_gram(self.gram)
        check_trips(self.trips, self.gram)

    def within(self, upload: float) -> Self:
        return replace(super().within((1 - GRAM_SHARE) * upload), gram=self.gram.within(GRAM_SHARE * upload))

    def gradients(self, M: int) -> float:
        return super().gradients(M) + (M - self.training_after_gram.reuse_jacobian) / self.gram_every

    def is_due(self, round: int) -> bool:
        """Whether round t, counted from 0, estimates G."""
        return round % self.gram_every == 0

    @property
    def gram_contributions(self) -> Mapping[str, Contribution]:
        """The contributions of clients to G."""
        return self.gram.contributions(self.gram_batch_size or self.batch_size)

    @property
    def training_after_gram(self) -> LocalTraining:
        """Local training in rounds that estimate G, whose first step reuses phase one's gradients if they have the same
        batch."""
        same_batch = self.gram_batch_size in (None, self.batch_size)
        return self.training(reuse_jacobian=self.gram.asks_cohort and same_batch)

    def measured(self) -> Mapping[str, Contribution]:
        """Further contributions that are measured together with G."""
        return {}

    def contributions(self) -> Mapping[str, Contribution]:
        return {
            **self.gram_contributions,
            **self.measured(),
            TRAIN: self.training_after_gram,
            TRAIN_ALONE: self.training(reuse_jacobian=False),
        }

    def releases(self, round: int) -> Sequence[str]:
        if not self.gram.asks_cohort:
            raise ValueError(
                f"the estimator of G must ask the round's cohort, but {type(self.gram).__name__} asks others"
            )
        return (*self.gram_contributions, *self.measured(), TRAIN) if self.is_due(round) else (TRAIN_ALONE,)

    def approx_gram_jacobian(self, server: Server) -> Estimate:
        """Estimate G, and ask for the other contributions that are measured with it."""
        return self.gram.estimate(server, *self.measured())

    def train(self, server: Server) -> Generator[Ask, Sums, Sums]:
        """Local training of the second trip: K steps on Σ_k w_k f_{i,k}. Returns its sums."""
        name = TRAIN if self.is_due(server.round) else TRAIN_ALONE
        return (yield Ask({name: self.training_message(server)})).part(name)

    def train_in_one_trip(self, server: Server) -> Generator[Ask, Sums, tuple[Sums, Sums]]:
        """Local training, in rounds that estimate G together with all contributions to it. Returns its sums, and those
        of the whole ask."""
        if not self.is_due(server.round):
            sums = yield Ask({TRAIN_ALONE: self.training_message(server)})
            return sums.part(TRAIN_ALONE), sums
        training, others = self.training_message(server), tuple(self.measured())
        sums = yield from train_and_measure(server, training, one_phase(self.gram), *others)
        return sums.part(TRAIN), sums
