"""The interface of a client's data: a length, and a method that makes a batch of given samples.

Only batching differs between images, tables and graphs, so it is the only method to implement:

>>> import torch
>>> data = TensorData(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 0]))
>>> len(data)
3
>>> inputs, targets = data.batch(torch.tensor([2, 0]))
>>> inputs.tolist(), targets.tolist()
([[4.0, 5.0], [0.0, 1.0]], [0, 0])
"""

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
    """Targets of an objective for which only some samples are labelled, with a mask.

    It replaces the targets: a tensor, or the target in a sample of a Dataset.

    Attributes:
        values: the targets, [B, ...]; those of unlabelled samples are never used.
        labelled: which samples have a target, bool [B].

    >>> Masked(torch.tensor([3, 0]), torch.tensor([True, False])).labelled.sum().item()
    1
    """

    values: Any
    labelled: Tensor


class TensorData:
    """Samples in memory as tensors, whose first dimension is the number of samples.

    Args:
        inputs: a tensor, or a tuple or dict of tensors.
        targets: the same; a tuple of M, or a dict by objective name, has one entry per objective. None in the tuple, or
            a name missing from the dict, means that the client does not own the objective.
    """

    def __init__(self, inputs: Any, targets: Any) -> None:
        for what, part in (("inputs", inputs), ("targets", targets)):
            for value in _leaves(part):
                if not isinstance(value, Tensor):
                    raise TypeError(
                        f"{what} must be tensors, or tuples or dicts of tensors, but got {type(value).__name__}; "
                        "of a NumPy array, torch.as_tensor(array, dtype=torch.float32) makes one"
                    )
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
    """A view of the samples `index` of other data, so that a partition of one data set needs no copies."""

    def __init__(self, data: Data, index: Tensor) -> None:
        self.data = data
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def batch(self, index: Tensor) -> tuple[Any, Any]:
        return self.data.batch(self.index[index])


class Labelled:
    """Other data restricted to the targets of some objectives; the other targets are None.

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
        batch = self.collate([self.dataset[i] for i in index.tolist()])
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            found = f"{len(batch)} entries" if isinstance(batch, (tuple, list)) else type(batch).__name__
            raise ValueError(
                f"a Dataset's samples must be pairs (inputs, targets), but have {found}; several inputs or targets "
                "are a tuple or dict of their own, and Problem(collate=...) can put a batch together in another way"
            )
        return batch[0], batch[1]


def as_data(source: Any, collate: Callable[[list[Any]], Any] = default_collate) -> Data:
    """Convert a user's data (a `Data`, a pair of tensors, a map-style Dataset) to `Data`."""
    if isinstance(source, Data):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return TensorData(*source)
    tensors = isinstance(source, (tuple, list)) and all(isinstance(value, Tensor) for value in source)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not tensors:
        return DatasetData(source, collate)
    raise TypeError(
        "data must be a pair (inputs, targets) of tensors, a map-style Dataset, or an object with __len__ and "
        f"batch(index), but got a {type(source).__name__}{f' of {len(source)} tensors' if tensors else ''}"
    )


def _leaves(part: Any) -> Iterator[Tensor]:
    if isinstance(part, (dict, tuple, list)):
        for value in part.values() if isinstance(part, dict) else part:
            yield from _leaves(value)
    elif part is not None:
        yield part


def _take(part: Any, index: Tensor) -> Any:
    if isinstance(part, (dict, tuple, list)):
        return rebuilt(part, lambda value: _take(value, index))
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


def rebuilt(parts: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to every value of a dict, tuple, named tuple or list, and return the same kind of container.

    >>> rebuilt((1, 2), lambda value: 10 * value), rebuilt({"a": 1}, lambda value: 10 * value)
    ((10, 20), {'a': 10})
    """
    if isinstance(parts, dict):
        return {name: change(value) for name, value in parts.items()}
    values = [change(value) for value in parts]
    return type(parts)(*values) if hasattr(parts, "_fields") else type(parts)(values)


def is_finite(part: Any) -> bool:
    """Whether no tensor of inputs or targets has a NaN or infinite entry."""
    return all(bool(x.isfinite().all()) for x in _leaves(part) if isinstance(x, Tensor))
