"""The results that a client keeps from one ask of a round to the next."""

from dataclasses import dataclass, field

from torch import Tensor

from fedcmoo.messages import Message


@dataclass(frozen=True)
class FirstStep:
    """The results of phase one on a client's first batch: J (as long as x), and the buffers after that pass.

    Attributes:
        codes: values computed from J, by name, so that a later ask of the round can reuse them.
    """

    J: Tensor
    buffers: Tensor
    counters: Tensor
    codes: dict[str, Message] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.J.nbytes + sum(code.nbytes for code in self.codes.values())
