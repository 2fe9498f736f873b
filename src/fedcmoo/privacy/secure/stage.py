"""The settings of secure sums, as a stage of every channel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedcmoo.client import Client
from fedcmoo.compression.shared_grid import REACH
from fedcmoo.contributions import Arrays, Channel, Channels, Contribution, Stage
from fedcmoo.messages import Field
from fedcmoo.optional import require
from fedcmoo.privacy.clipping import Clip, QuantileClip
from fedcmoo.problem import Problem
from fedcmoo.rounds import Sizes
from fedcmoo.validation import positive

SMALLEST = 3
"""The smallest allowed cohort: two clients could derive each other's codes from their sum."""


@dataclass(frozen=True)
class Secure(Stage):
    """Secure aggregation: the server learns the sum of each contribution over the cohort, but no single reply.

    Clients round their contributions to integers that add up modulo 2^bits (see `SharedGrid`) and mask them. The grid
    needs a bound on the norm of a client's contribution: that of `Clip` or of differential privacy, if there is one,
    and `bound` otherwise. Clients clip to it; the server cannot check that they do.

    Args:
        bits: the number of bits of an entry as sent, from 8 to 32. The sum over the cohort must fit into them. With 32
            bits the error is that of float32 numbers; fewer need a bound that is not far above the norms that occur.
        bound: the bound on the norm of a client's contribution.
        smallest: the minimum number of clients in a sum.
        nodes: the public keys of all nodes, by their partition, in hexadecimal digits. With them, the server cannot add
            fake clients; without them, nodes store the keys of the others on first use and accept no other keys later.
    """

    bits: int = 32
    bound: float = 1000.0
    smallest: int = SMALLEST
    nodes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require("cryptography.hazmat.primitives.kdf.hkdf", "privacy")
        if not 8 <= self.bits <= 32:
            raise ValueError(f"bits must be from 8 to 32, but got {self.bits}")
        positive(bound=self.bound)
        if self.smallest < SMALLEST:
            raise ValueError(f"smallest must be at least {SMALLEST}, but got {self.smallest}")
        wrong = [key for key in self.nodes if len(key) != 64 or not set(key) <= set("0123456789abcdef")]
        if wrong:
            raise ValueError(f"nodes must be public keys of 64 hexadecimal digits, but one is {wrong[0]!r:.80}")

    @property
    def exact(self) -> bool:
        return self.bits == 32

    def check(self, contribution: Contribution, sizes: Sizes) -> None:
        if not contribution.summable:
            fits = "gram=Sketch(bits=32)" if contribution.gradients else "update=None, and secure.bits for fewer bits"
            raise ValueError(
                f"secure sums need codes that add up, but those of {type(contribution).__name__} do not; take {fits}"
            )
        for name, field in contribution.fields(sizes).items():
            if field.add != "sum":
                fix = "a model without buffers, such as GroupNorm in place of BatchNorm"
                raise ValueError(
                    f"secure sums need arrays that add up, but {name!r} of {type(contribution).__name__} does not; "
                    f"take {fix if field.add == 'newest' else 'another method, such as FedCMOO'}"
                )

    def check_run(self, problem: Problem, n: int, stages: Sequence[Stage]) -> None:
        if any(isinstance(stage, QuantileClip) for stage in stages):
            raise ValueError("secure sums need a constant bound, but that of privacy.quantile changes; leave it out")
        if problem.client_test is not None:
            raise ValueError("secure sums hide the scores of single clients, but the problem has client_test data")
        if n < self.smallest:
            raise ValueError(f"secure sums need cohorts of at least {self.smallest} clients, but got {n}")
        shortage = self.shortage(n)
        if shortage is not None:
            raise ValueError(shortage)

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        return Clip(self.bound).on_client(arrays, fields, client)

    def shortage(self, n: int) -> str | None:
        """The reason why sums over n clients need more bits; None if they do not."""
        least = next(b for b in range(1, 64) if 2 ** (b - 1) > 2 * REACH * n)
        return (
            None
            if self.bits >= least
            else f"bits must be at least {least} for sums over {n} clients, but got {self.bits}"
        )

    def bound_of(self, channel: Channel) -> float:
        """The bound on a client's contribution: the least of all stages."""
        return min([self.bound, *(stage.bound for stage in channel.stages if isinstance(stage, Clip))])


SECURE: dict[str, type[Secure]] = {"masked": Secure}
"""By name, for configurations."""


def secure_of(channels: Channels) -> Secure | None:
    """The stage of a run with secure sums; None for other runs."""
    return next((s for channel in channels.values() for s in channel.stages if isinstance(s, Secure)), None)
