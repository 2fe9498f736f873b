"""FedCMOO-Pref: FedCMOO with a user's preference between the losses (Algorithm 6)."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fedcmoo.contributions import Contribution
from fedcmoo.methods.base import is_known, is_usable
from fedcmoo.methods.gram_weighted import GramWeighted
from fedcmoo.methods.one_trip import take_last_gram
from fedcmoo.methods.scalarized import LAST_LOSSES, Losses
from fedcmoo.rounds import Ask, Round, Server
from fedcmoo.settings import Named, registered
from fedcmoo.sums import Sums
from fedcmoo.types import Matrix, Vector
from fedcmoo.validation import below_one, check_literals
from fedcmoo.weights import FindWeightsPref, check_preference

PREFERENCE_RULES: dict[str, type[FindWeightsPref]] = {"find-weights-pref": FindWeightsPref}
"""Rules that turn preference, losses and G into weights, by name."""


@dataclass(frozen=True, kw_only=True)
class FedCMOOPref(GramWeighted):
    """FedCMOO with weights that first bring the losses to r_1 F_1(x) = … = r_M F_M(x) and then decrease all of them.

    A round costs as much as one of FedCMOO plus M numbers per client: its losses, sent in the first phase of the Gram
    estimate. In the history, `notes` contains "kl", the non-uniformity μ_r of the losses from which the weights were
    computed, and "fallback", the source of the weights (see `Fallback`): the losses are those at the start of the
    round or, with one trip, of the previous round. The weights stay unchanged and there are no such notes in rounds
    without an estimate of G, if G is not finite, and if nobody in the cohort owns some objective, whose loss and
    gradient are then unknown.

    Args:
        preference: r, a positive number per objective; twice the number asks for half the loss. It is not normalized.
            None for equal losses.
        weights: FindWeightsPref with its settings.
        inertia: from 0 up to 1: the share of the previous weights in the new ones. The solutions of a linear program
            are corners, so weights jump between objectives; the loss of an objective that long had a small weight may
            be too sharp for steps with a large one, and rise suddenly. 0 is the paper's value; 0.8 averages over
            several rounds.
        losses: "all" averages a client's losses over all of its data, as in the authors' runs; "batch" over its first
            batch of the round only, which costs clients almost nothing, but is noisier.
        gram, gram_every, gram_batch_size, trips: as in `FedCMOO`; losses are measured together with G.

    References:
        Askin, Sharma, Joshi and Joe-Wong. Federated Communication-Efficient Multi-Objective Optimization. AISTATS 2025.
    """

    title: ClassVar[str] = "FedCMOO towards the ratios of losses that a user prefers"
    display_name = "FedCMOO-Pref"

    preference: Sequence[float] | None = None
    weights: Named[FindWeightsPref] = registered(FindWeightsPref(), PREFERENCE_RULES)
    inertia: float = 0.0
    losses: Literal["all", "batch"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preference is not None:
            check_preference(self.preference)
        below_one(inertia=self.inertia)
        check_literals(self)

    def initial_weights(self, M: int) -> Vector:
        self.r(M)  # find a preference of the wrong length before work starts
        return super().initial_weights(M)

    def r(self, M: int) -> Vector:
        """The preference vector [M]."""
        return check_preference([1.0] * M if self.preference is None else self.preference, M)

    def measured(self) -> Mapping[str, Contribution]:
        return {"losses": Losses(self.gram_batch_size or self.batch_size, whole_data=self.losses == "all")}

    def round(self, server: Server) -> Round:
        # Line 4: the cohort is drawn before the round starts, and the first ask sends it the model x.
        if self.trips == 1:
            updates = yield from self.one_trip(server)
        else:
            if self.is_due(server.round):
                G, sums = yield from self.approx_gram_jacobian(server)  # lines 5 and 6: G ≈ ∇F(x)^T ∇F(x), F̃ ≈ F(x)
                if is_usable(server, G) and is_known(G).all():
                    server.G, losses = G, sums.objective_mean("losses/losses")
                    self.reweigh(server, losses, G)  # line 7: w <- FindWeightsPref(r, F̃, G)
            updates = yield from self.train(server)  # lines 8 to 14: K steps on Σ_k w_k f_{i,k}
        self.finish(server, updates)  # line 15: x <- x - η_s mean_i (x - x_i)

    def one_trip(self, server: Server) -> Generator[Ask, Sums, Sums]:
        """Run lines 5 to 14 with one ask: w comes from the last G and losses; clients that train send new ones."""
        G = take_last_gram(server)
        if G is not None and is_known(G).all():
            self.reweigh(server, server.memory[LAST_LOSSES], G)
        updates, sums = yield from self.train_in_one_trip(server)
        if "losses/losses" in sums.totals:
            server.memory[LAST_LOSSES] = sums.objective_mean("losses/losses")
        return updates

    def reweigh(self, server: Server, losses: Tensor, G: Matrix) -> None:
        """Set the server's w, and note its source."""
        w, kl, fallback = self.weights(self.r(server.sizes.M), losses.numpy(), G)
        server.w = self.inertia * server.w + (1 - self.inertia) * w  # the paper's w if inertia is 0
        server.notes |= {"kl": kl, "fallback": float(fallback)}
