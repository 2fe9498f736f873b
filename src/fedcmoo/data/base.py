"""What a client's data looks like to the library: something with a length that can make a batch of chosen samples.

Batching is the one thing that differs between images, tables and graphs, so it is the one method to write:

>>> import torch
>>> data = TensorData(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
>>> len(data)
3
>>> inputs, targets = data.batch(torch.tensor([2, 0]))
>>> inputs.tolist(), targets.tolist()
([[4.0, 5.0], [0.0, 1.0]], [0, 0])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate


@runtime_checkable
class Data(Protocol):
    """Samples of one client (or of a test set): a length, and a batch of the samples with given indices."""

    def __len__(self) -> int:
        """The number of samples."""

    def batch(self, index: Tensor) -> tuple[Any, Any]:
        """Inputs and targets of the samples `index` (int64, shape [B])."""


class Masked(NamedTuple):
    """Targets of an objective of which only some samples have one, said by a mask.

    It stands where the targets would: in the place of a tensor, or in a sample of a Dataset.

    Attributes:
        values: the targets, [B, ...]; those of the other samples are never looked at.
        labelled: which samples have one, bool [B].

    >>> Masked(torch.tensor([3, 0]), torch.tensor([True, False])).labelled.sum().item()
    1
    """

    values: Any
    labelled: Tensor


class TensorData:
    """Samples that lie in memory as tensors: the first dimension counts the samples.

    Args:
        inputs: a tensor, or a tuple or dict of tensors.
        targets: the same; a tuple of M or a dict by objective's name is dealt out to the objectives. None in the tuple,
            or a name that is not in the dict, says that the client does not own the objective.
    """

    def __init__(self, inputs: Any, targets: Any) -> None:
        lengths = {len(t) for part in (inputs, targets) for t in _leaves(part)}
        if len(lengths) != 1:
            raise ValueError(f"inputs and targets must have the same number of samples, but got {sorted(lengths)}")
        self.inputs = inputs
        self.targets = targets
        self._length = lengths.pop()

    def __len__(self) -> int:
        return self._length

    def batch(self, index: Tensor) -> tuple[Any, Any]:
        return _take(self.inputs, index), _take(self.targets, index)


class Subset:
    """The samples `index` of some other data, without a copy: how a partition hands one big set to many clients."""

    def __init__(self, data: Data, index: Tensor) -> None:
        self.data = data
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def batch(self, index: Tensor) -> tuple[Any, Any]:
        return self.data.batch(self.index[index])


class Labelled:
    """Some other data with the targets of some objectives only; the others are None.

    Args:
        data: data with a tuple of M targets.
        owned: for each objective whether its target is kept, [M].
    """

    def __init__(self, data: Data, owned: Sequence[bool]) -> None:
        self.data = data
        self.owned = tuple(owned)

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, index: Tensor) -> tuple[Any, Any]:
        inputs, targets = self.data.batch(index)
        return inputs, tuple(t if keep else None for t, keep in zip(targets, self.owned, strict=True))


class DatasetData:
    """Any map-style `torch.utils.data.Dataset` of (inputs, targets); `collate` makes a batch of a list of samples."""

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any] = default_collate) -> None:
        self.dataset = dataset
        self.collate = collate

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def batch(self, index: Tensor) -> tuple[Any, Any]:
        inputs, targets = self.collate([self.dataset[i] for i in index.tolist()])
        return inputs, targets


def as_data(source: Any, collate: Callable[[list[Any]], Any] = default_collate) -> Data:
    """Take what a user has (a `Data`, a pair of tensors, a map-style Dataset) as `Data`."""
    if isinstance(source, Data):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return TensorData(*source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return DatasetData(source, collate)
    raise TypeError(
        "data must be a pair (inputs, targets) of tensors, a map-style Dataset, or an object with __len__ and "
        f"batch(index), but got {type(source).__name__}"
    )


def _leaves(part: Any) -> Iterator[Tensor]:
    if isinstance(part, (dict, tuple, list)):
        for value in part.values() if isinstance(part, dict) else part:
            yield from _leaves(value)
    elif part is not None:
        yield part


def _take(part: Any, index: Tensor) -> Any:
    if isinstance(part, dict):
        return {name: _take(value, index) for name, value in part.items()}
    if isinstance(part, (tuple, list)):
        taken = (_take(value, index) for value in part)
        return type(part)(*taken) if hasattr(part, "_fields") else tuple(taken)  # the former for named tuples
    return None if part is None else part[index]


def batches(n: int, batch_size: int | None, shuffle: torch.Generator) -> Iterator[Tensor]:
    """Indices of successive batches from shuffled epochs of n samples. With batch_size None, a batch is all of them."""
    if batch_size is None or batch_size >= n:
        while True:
            yield torch.arange(n)
    left = torch.empty(0, dtype=torch.int64)
    while True:
        while len(left) < batch_size:
            left = torch.cat([left, torch.randperm(n, generator=shuffle)])
        yield left[:batch_size]
        left = left[batch_size:]


def everything(data: Data) -> tuple[Any, Any]:
    """One batch with all samples, in order."""
    return data.batch(torch.arange(len(data)))
