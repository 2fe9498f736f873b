"""The model as one flat vector x in R^d.

Every trainable parameter is a view into `x` and its gradient a view into `grad`, so a model is reset, stepped, sent or
summed by one operation on one vector, and clients need no separate copies. Shared parameters come first: `x[:d_shared]`
is the part that the Gram matrix covers. Private ones, which never leave a client, come last: `x[:d]` is what server and
clients exchange.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from fedcmoo.data.base import rebuilt

Precision = Literal["float32", "bfloat16"]
"""The precision of the model's outputs: float32, or automatic mixed precision. Parameters, losses and sums are not
affected."""

Prefixes = tuple[str, ...]
"""A group of a model's parameters, by prefixes of their names."""


def check_precision(precision: str, device: str) -> None:
    """Raise unless the device's hardware supports this precision."""
    if precision not in get_args(Precision):
        raise ValueError(f"precision must be 'float32' or 'bfloat16', but got {precision!r}")
    if precision == "bfloat16":
        has_it = (
            torch.cuda.is_bf16_supported()
            if device.startswith("cuda")
            else torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )
        if not has_it:
            raise ValueError(f"precision 'bfloat16' needs hardware support, but {device!r} has none; use 'float32'")


def check_device(device: str) -> None:
    """Raise unless it is this machine's processor or a CUDA device. (Others lack float64, or are not tested.)"""
    here = ["cpu", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))]
    if device not in here and not (device == "cuda" and len(here) > 1):
        raise ValueError(f"device must be one of this machine's ({', '.join(here)}), but got {device!r}")


@dataclass(frozen=True)
class State:
    """The state of a model: parameters x [d], float buffers, integer counters."""

    x: Tensor
    buffers: Tensor
    counters: Tensor

    @property
    def arrays(self) -> dict[str, Tensor]:
        """Its arrays by name."""
        return {"x": self.x, "buffers": self.buffers, "counters": self.counters}

    @cached_property
    def version(self) -> str:
        """A digest of the contents: two models are equal if and only if their versions are."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.arrays.values():
            digest.update(array.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def to(self, device: torch.device) -> State:
        """The same state on a device."""
        if self.x.device == device:
            return self
        return State(self.x.to(device), self.buffers.to(device), self.counters.to(device))

    def joined(self, private: State) -> State:
        """The whole model of a client: this public part and a private part."""
        return State(**{name: torch.cat([a, private.arrays[name].to(a)]) for name, a in self.arrays.items()})


class FlatModel:
    """A module whose trainable parameters are in-place views of one vector.

    Args:
        module: the model; it is changed in place (its parameters become views).
        is_shared: returns, given a parameter's name, whether all objectives share it.
        precision: "bfloat16" to compute the module's outputs in automatic mixed precision.
        is_private: returns, given the name of a parameter or buffer, whether it never leaves a client.
        channels_last: whether convolution kernels and images are laid out channels-last, which is faster on CPUs. A
            module that flattens a convolution's output with `view` does not work in this layout. The order of x depends
            on it.

    Attributes:
        x: the parameters: d public ones, then the private ones.
        grad: their gradients, of the same length; `backward` on any loss of the module adds to it.
        d: the number of parameters that are not private.
        d_shared: the number of shared ones, which come first.
        shared: the shared parameters of the module.
        stops_early: whether backward passes for shared parameters alone are shorter. They are if the module's first
            parameter is not shared, as where only the last layers of an encoder are.
    """

    def __init__(
        self,
        module: nn.Module,
        is_shared: Callable[[str], bool] = lambda name: True,
        precision: Precision = "float32",
        is_private: Callable[[str], bool] = lambda name: False,
        channels_last: bool = True,
    ) -> None:
        self.module = module
        self.precision = precision
        self.channels_last = channels_last
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.stops_early = any(is_private(name) or not is_shared(name) for name, _ in named[:1])
        # A stable sort: shared parameters first and private ones last, otherwise in the module's own order.
        named.sort(key=lambda item: (is_private(item[0]), not is_shared(item[0])))
        dtypes = {p.dtype for _, p in named}
        if len(dtypes) != 1:
            raise ValueError(f"all trainable parameters must have one dtype, but got {sorted(map(str, dtypes))}")
        self.d = sum(p.numel() for name, p in named if not is_private(name))
        self.d_shared = sum(p.numel() for name, p in named if is_shared(name) and not is_private(name))
        self.x = torch.empty(sum(p.numel() for _, p in named), dtype=dtypes.pop(), device=named[0][1].device)
        self.grad = torch.zeros_like(self.x)
        self._rows: Tensor | None = None
        self.shared = [p for name, p in named if is_shared(name) and not is_private(name)]
        # The locations of the buffers, not the buffers: a module may replace one by another tensor.
        found = [
            (is_private(f"{prefix}.{name}".lstrip(".")), (m._buffers, name))
            for prefix, m in module.named_modules()
            for name, b in m._buffers.items()
            if b is not None
        ]
        found.sort(key=lambda item: item[0])
        self._floats = [place for _, place in found if _tensor(*place).is_floating_point()]
        self._integers = [place for _, place in found if not _tensor(*place).is_floating_point()]
        public = [_tensor(*place) for private, place in found if not private]
        self._public_floats = sum(b.numel() for b in public if b.is_floating_point())
        self._public_integers = sum(b.numel() for b in public if not b.is_floating_point())
        start = 0
        for _, p in named:
            stop = start + p.numel()
            view = self._view(self.x[start:stop], p)
            view.copy_(p.data)
            p.data = view
            p.grad = self._view(self.grad[start:stop], p)
            start = stop

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.x.device

    def __call__(self, inputs: Any) -> Any:
        """The module's outputs for a batch, which may be on any device."""
        inputs = self.move(inputs)
        if self.precision == "float32":
            return self.module(inputs)
        with torch.autocast(self.device.type, torch.bfloat16):
            outputs = self.module(inputs)
        return self.move(outputs, self.x.dtype)

    def move(self, value: Any, dtype: torch.dtype | None = None) -> Any:
        """The tensors of a batch on the model's device and in its layout, floats in a dtype."""
        if isinstance(value, Tensor):
            dtype = dtype if value.is_floating_point() else None
            if value.ndim == 4:
                layout = torch.channels_last if self.channels_last else torch.contiguous_format
                return value.to(self.device, dtype, memory_format=layout)
            return value.to(self.device, dtype)
        if isinstance(value, (dict, tuple, list)):
            return rebuilt(value, lambda part: self.move(part, dtype))
        return value.to(self.device) if hasattr(value, "to") else value

    def _view(self, flat: Tensor, like: Tensor) -> Tensor:
        """A view of `flat` in the shape of `like`; convolution kernels in the model's layout."""
        if like.ndim == 4 and self.channels_last:
            out, channels, height, width = like.shape
            return flat.view(out, height, width, channels).permute(0, 3, 1, 2)
        return flat.view(like.shape)

    def rows(self, n: int, columns: int) -> Tensor:
        """A scratch matrix [n, columns] that is allocated once and reused by every call."""
        if self._rows is None or self._rows.shape != (n, columns):
            self._rows = self.x.new_empty(n, columns)
        return self._rows

    def buffers(self) -> Tensor:
        """The float buffers (BatchNorm's statistics, say) as one vector, private ones last; servers average others."""
        floats = [_tensor(*place).detach().reshape(-1).to(self.x.dtype) for place in self._floats]
        return torch.cat(floats) if floats else self.x.new_empty(0)

    @property
    def variances(self) -> tuple[tuple[int, int], ...]:
        """Where in `buffers` the variances of normalization layers are, as ranges (start, stop)."""
        stops = list(accumulate(_tensor(*place).numel() for place in self._floats))
        ranges = zip([0, *stops], stops, self._floats, strict=False)
        return tuple((start, stop) for start, stop, (_, name) in ranges if name == "running_var")

    def counters(self) -> Tensor:
        """The integer buffers as one int64 vector, private ones last; servers take those of the newest reply."""
        integers = [_tensor(*place).detach().reshape(-1).to(torch.int64) for place in self._integers]
        return torch.cat(integers) if integers else torch.empty(0, dtype=torch.int64, device=self.device)

    @property
    def state(self) -> State:
        """A copy of the model's current state."""
        return State(self.x.detach().clone(), self.buffers().clone(), self.counters().clone())

    @property
    def public(self) -> State:
        """The part of the current state that server and clients exchange."""
        floats, integers = self._public_floats, self._public_integers
        return State(self.x.detach()[: self.d], self.buffers()[:floats], self.counters()[:integers])

    @property
    def private(self) -> State:
        """A copy of the part that never leaves a client."""
        floats, integers = self._public_floats, self._public_integers
        parts = (self.x.detach()[self.d :], self.buffers()[floats:], self.counters()[integers:])
        return State(*(part.clone() for part in parts))  # a slice would keep, and send, the whole vector

    def load(self, state: State) -> None:
        """Reset the model in place; if the state has no private part, that of the model is unchanged."""
        self.x[: len(state.x)].copy_(state.x)
        for places, source in ((self._floats, state.buffers), (self._integers, state.counters)):
            start = 0
            for place in places:
                if start < len(source):
                    buffer = _tensor(*place)
                    buffer.copy_(source[start : start + buffer.numel()].view_as(buffer))
                    start += buffer.numel()


def _tensor(holder: dict[str, Tensor | None], name: str) -> Tensor:
    tensor = holder[name]
    assert tensor is not None
    return tensor


def is_under(name: str, prefixes: Sequence[str]) -> bool:
    """Whether a parameter or buffer is one of the modules or parameters with these names, or within one.

    >>> is_under("heads.0.weight", ["heads"]), is_under("heads2.weight", ["heads"])
    (True, False)
    """
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def shared_prefixes(shared: Sequence[str] | str | None, names: Sequence[str]) -> Prefixes | None:
    """The prefixes of the shared ones among the trainable parameters; None if all are shared."""
    return None if shared is None or shared == "all" else _checked("shared", shared, names)


def private_prefixes(private: Sequence[str] | str, shared: Prefixes | None, names: Sequence[str]) -> Prefixes:
    """The prefixes of the private ones among the trainable parameters, none of which is shared."""
    prefixes = _checked("private", private, names)
    both = [name for name in names if is_under(name, prefixes) and is_under(name, shared or ())]
    if both:
        raise ValueError(f"a parameter must be shared or private, but {both[0]!r} is both")
    if all(is_under(name, prefixes) for name in names):
        raise ValueError("a model must have a trainable parameter that is not private, but all of them are")
    return prefixes


def _checked(what: str, prefixes: Sequence[str] | str, names: Sequence[str]) -> Prefixes:
    found = (prefixes,) if isinstance(prefixes, str) else tuple(prefixes)
    for prefix in found:
        if not any(is_under(name, [prefix]) for name in names):
            raise ValueError(f"{what} names {prefix!r}, but the model has no trainable parameter under that name")
    return found
