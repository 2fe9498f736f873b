"""Differential privacy of a run: its settings, the noise in each sum, and the budget that rounds spend."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from fedcmoo.contributions import Contribution, Stage
from fedcmoo.files import DamagedError, write_json
from fedcmoo.messages import Field
from fedcmoo.ownership import Share, scales, unequal
from fedcmoo.privacy.accounting import Accountant, calibrate, check_target, effective_multiplier
from fedcmoo.privacy.clipping import VOTES, Clip, QuantileClip
from fedcmoo.privacy.noise import add_noise
from fedcmoo.privacy.sampling import SAMPLINGS
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.validation import check_literals, positive

SPENT = "privacy.json"
"""The file in a run's folder with the rounds accounted for. Unlike checkpoints, it is never rolled back."""

VOTE_NOISE = 10.0
"""The noise multiplier of votes on the clipping bound, as a multiple of that of the sums: they cost 0.5 % of z."""

PUBLIC = (
    "differential privacy takes clients' objectives and weights as public, so unequal clients need owns=[...] and "
    "weights of 'equal' or numbers in the problem, but here they come from the data"
)


@dataclass(frozen=True, kw_only=True)
class DifferentialPrivacy(Stage):
    """Central (ε, δ)-differential privacy of clients: the models of a run hardly depend on any one client's data.

    Each client clips each of its contributions, the server adds Gaussian noise to each sum over the cohort and divides
    it by the expected size of a cohort. Cohorts and noise come from the operating system's randomness, so equal seeds
    do not give equal runs. The server itself is trusted: it sees replies and knows the cohorts.

    As a stage, it is the last of a run. Nodes clip by it; the server also adds noise and accounts (see `PrivateRun`).

    Args:
        epsilon: ε, the budget of the whole run. The run ends before the first round that would exceed it.
        delta: δ; None for N^-1.1, where N is the number of clients.
        clip: C, the bound on a client's update, in L2 norm.
        clip_gradients: the bound on a client's Jacobian or its sketch, in Frobenius norm; None for the same.
        sampling: how cohorts are drawn: "poisson", or "fixed-size" without replacement, which needs much more noise.
        noise: z, the standard deviation of the noise in each sum as a multiple of the bound; None for the smallest
            value with which all rounds of the run are within the budget.
        quantile: let the bounds follow this quantile of the clients' norms, from `clip` and `clip_gradients` in the
            first round; None for fixed bounds (see `QuantileClip`).

    References:
        McMahan, Ramage, Talwar and Zhang. Learning differentially private recurrent language models. ICLR 2018.
    """

    epsilon: float
    delta: float | None = None
    clip: float = 1.0
    clip_gradients: float | None = None
    sampling: Literal["poisson", "fixed-size"] = "poisson"
    noise: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        check_target(self.epsilon, 0.5 if self.delta is None else self.delta)
        check_literals(self)
        if self.noise is not None:
            positive(noise=self.noise)
        self.clipping()

    def of(self, contribution: Contribution) -> Stage:
        return self.clipping().of(contribution)

    def clipping(self) -> Clip:
        """The clients' part: the clipping stage."""
        if self.quantile is None:
            return Clip(self.clip, self.clip_gradients)
        return QuantileClip(self.clip, self.clip_gradients, self.quantile)


PRIVACY: dict[str, type[DifferentialPrivacy]] = {"differential": DifferentialPrivacy}
"""By name, for configurations."""


@dataclass(frozen=True)
class Noise(Stage):
    """Add Gaussian noise to each sum, and divide means by a number that does not depend on which clients replied.

    Args:
        multiplier: z; the standard deviation is z C.
        clipping: the clipping stage with the bound C.
        n: the expected size of a cohort.
        P, P_k: the divisors of means: the expected weight of a cohort, and for each objective that of its owners; P_k
            is None if all clients have weight 1 and own all objectives.
    """

    multiplier: float
    clipping: Clip
    n: int
    P: float
    P_k: tuple[float, ...] | None = None

    def of(self, contribution: Contribution) -> Noise:
        return replace(self, clipping=self.clipping.of(contribution))

    def check(self, contribution: Contribution, sizes: Sizes) -> None:
        for name, field in contribution.fields(sizes).items():
            if field.degree != 1 or field.add != "sum" or not field.clippable:
                raise ValueError(
                    f"differential privacy takes sums of gradients and updates alone, but {type(contribution).__name__}"
                    f" also sends {name!r}; for the Gram matrix take Sketch(correction=False), OneWay() or Exact()"
                )

    def on_server(self, sums: Sums, fields: Mapping[str, Field], server: Server) -> None:
        unknown = sums.totals.keys() - fields.keys()
        if unknown:
            raise ValueError(f"sums must be of {sorted(fields)} to have their noise, but there is also {unknown}")
        if sums.P_k is not None and self.P_k is None:
            raise ValueError(PUBLIC)
        for name, field in fields.items():
            std = self.multiplier * self._sensitivity(name, server)
            total = sums.totals.get(name)
            if total is None:  # nobody was drawn
                total = torch.zeros([size or 0 for size in field.shape], dtype=field.dtype)
            sums.totals[name] = add_noise(total, std)
            sums.noise[name] = std
        sums.count, sums.P = self.n, self.P
        sums.P_k = None if self.P_k is None else torch.tensor(self.P_k, dtype=torch.float64)

    def _sensitivity(self, name: str, server: Server) -> float:
        """The largest change of a sum by one client; larger for votes, in proportion to their additional noise."""
        return VOTE_NOISE * QuantileClip.sensitivity if name == VOTES else self.clipping.bound_at(server)


def public_shares(problem: Problem) -> Mapping[int, Share]:
    """The clients' weights and objectives as the problem states them; none if all clients have weight 1 and own all
    objectives. Data that are here are only read to refuse clients that lack labels before any budget is spent."""
    if problem.owns is None and problem.weights == "equal" and not problem.shares_here():
        return {}
    if problem.owns is None or problem.weights == "samples":
        raise ValueError(PUBLIC)
    return unequal({i: problem.share(i) for i in range(problem.N)})


class PrivateRun:
    """Differential privacy in a run: draws cohorts, adds noise, and accounts for rounds before they start.

    Args:
        settings: the user's settings.
        releases: the contributions of a round, by its number from 0.
        problem: the problem whose clients are drawn.
        n: the expected size of a cohort.
        rounds: the number of rounds of the run.
        others: the other stages of the run.

    Attributes:
        stages: all stages at the server.
    """

    def __init__(
        self,
        settings: DifferentialPrivacy,
        releases: Callable[[int], Sequence[str]],
        problem: Problem,
        n: int,
        rounds: int,
        others: Sequence[Stage] = (),
    ) -> None:
        for stage in others:
            if type(stage).on_reply is not Stage.on_reply:
                raise ValueError(f"privacy must be the last to change a reply, but {type(stage).__name__} does, too")
        if problem.client_test is not None:
            raise ValueError(
                "privacy must cover all that clients send, but their metrics on client_test have no noise; leave it out"
            )
        shares = public_shares(problem)
        sampling = SAMPLINGS[settings.sampling](problem.N, n)
        delta = problem.N**-1.1 if settings.delta is None else settings.delta
        self.accountant = Accountant(sampling, settings.epsilon, delta)
        self._releases = releases
        self._multipliers = [1.0] if settings.quantile is None else [1.0, VOTE_NOISE]
        kinds = Counter(self._relative_noise(t) for t in range(rounds))
        self.multiplier = settings.noise or calibrate(sampling, settings.epsilon, delta, kinds)
        self.scales = scales(shares)
        noise = Noise(self.multiplier, settings.clipping(), n, n)
        if shares:
            P_k = torch.stack([share.weights for share in shares.values()]).mean(dim=0) * n
            P = sum(share.weight for share in shares.values()) * n / problem.N
            noise = replace(noise, P=P, P_k=tuple(P_k.tolist()))
        self.stages = (*others, settings.clipping(), noise)
        self._cohort: tuple[int, ...] = ()
        self._left: list[str] = []
        self._file: Path | None = None

    @classmethod
    def of(
        cls, stages: Sequence[Stage], releases: Callable[[int], Sequence[str]], problem: Problem, n: int, rounds: int
    ) -> PrivateRun | None:
        """Differential privacy as the last of these stages asks for it; None if it does not."""
        if any(isinstance(stage, DifferentialPrivacy) for stage in stages[:-1]):
            raise ValueError(f"differential privacy must be the last stage, but {type(stages[-1]).__name__} is")
        if not stages or not isinstance(stages[-1], DifferentialPrivacy):
            return None
        return cls(stages[-1], releases, problem, n, rounds, stages[:-1])

    def start(self, server: Server, folder: Path | None, resume: bool) -> None:
        """Load the budget that the run has spent so far; raise if the rest is not enough for one round."""
        server.scales = self.scales
        self._file = None if folder is None else folder / SPENT
        if self._file is not None and resume and (server.round or self._file.exists()):
            self.accountant.rounds = _spent(self._file)
        if server.round == 0 and not self.allows(0):
            raise ValueError(
                f"epsilon must be enough for one round with noise {self.multiplier:.3g}, but {self.accountant.epsilon} "
                f"is not, with {self.accountant.spent:.3g} spent so far"
            )

    def allows(self, round: int) -> bool:
        """Whether round t, counted from 0, is within the budget."""
        return not self.accountant.would_exceed(self._effective(round))

    def start_round(self, server: Server) -> None:
        """Account for the round, also on the disk, and draw its cohort."""
        self.accountant.add(self._effective(server.round))
        if self._file is not None:
            spent = {"epsilon": self.epsilon, "delta": self.accountant.delta}
            write_json(self._file, {**spent, "rounds": sorted(self.accountant.rounds.items())})
        self._cohort = server.cohort = self.accountant.sampling.draw()
        self._left = list(self._releases(server.round))

    @property
    def epsilon(self) -> float:
        """ε of all rounds that were started."""
        return self.accountant.spent

    def check(self, ask: Ask, server: Server) -> None:
        """Raise unless the ask was accounted for: it must go to the drawn cohort, with each contribution once."""
        if ask.clients is not None or not set(server.cohort) <= set(self._cohort):
            raise RuntimeError("a private round must ask the cohort that was drawn, but this one asks others")
        for name in ask.messages:
            if name not in self._left:
                raise RuntimeError(f"round {server.round + 1} must not ask for {name!r}, which it did not account for")
            self._left.remove(name)

    def _relative_noise(self, round: int) -> float:
        """The round's effective noise multiplier, for releases with a multiplier of 1."""
        return effective_multiplier(self._multipliers * len(self._releases(round)))

    def _effective(self, round: int) -> float:
        return self.multiplier * self._relative_noise(round)


def _spent(file: Path) -> Counter[float]:
    """The rounds accounted for so far: their number, by effective noise multiplier."""
    try:
        rounds = json.loads(file.read_text())["rounds"]
        return Counter({float(z): int(count) for z, count in rounds})
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(
            f"a private run can be resumed only with the budget spent so far, but {file} is missing or damaged "
            f"({error!r:.200}); restore it from a backup, or start a new run with a budget of its own"
        ) from error
