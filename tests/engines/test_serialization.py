"""What crosses the pipe to a worker, and what lies in shared memory."""

from __future__ import annotations

import os
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcmoo.engines import serialization
from fedcmoo.sums import Sums

X = torch.arange(24, dtype=torch.float32).reshape(4, 6)
TENSORS = {
    "plain": X,
    "view": X[1:3, 2:],
    "transposed": X.T,
    "expanded": X[:1].expand(5, 6),
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(3),
    "bfloat16": X.bfloat16(),
    "bool": X > 5,
    "complex": torch.complex(X, -X),
    "conjugate": torch.complex(X, -X).conj(),
    "sparse": X.to_sparse(),
    "trainable": X.clone().requires_grad_(),
}


def through_pipe(value: Any) -> Any:
    ours, theirs = Pipe()
    with ours, theirs:
        serialization.send(ours, value)
        return serialization.receive(theirs)


def through_memory(value: Any) -> Any:
    shared = serialization.SharedObject(value)
    fd = os.dup(shared.memory.fd)
    shared.memory.close()
    try:
        return serialization.load_shared(fd, shared.memory.size, shared.contents)
    finally:
        os.close(fd)


@pytest.mark.parametrize("way", [through_pipe, through_memory])
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_arrive_as_they_are(way: Any, name: str) -> None:
    there = TENSORS[name]
    here: Tensor = way({"it": there})["it"]
    assert here.dtype == there.dtype
    assert here.shape == there.shape
    assert here.layout == there.layout
    assert here.requires_grad == there.requires_grad
    assert torch.equal(here.to_dense(), there.to_dense())


@pytest.mark.parametrize("way", [through_pipe, through_memory])
def test_modules_and_arrays_arrive_as_they_are(way: Any) -> None:
    model, array = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), np.arange(6.0)[::2]
    model_here, array_here = way((model, array))
    for a, b in zip(model.state_dict().values(), model_here.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert [p.requires_grad for p in model_here.parameters()] == [True] * 4
    assert array_here.tolist() == [0, 2, 4]


def test_what_arrives_can_be_added_to() -> None:
    sums = Sums()
    sums.add({"update": torch.ones(3)}, nbytes=12)
    here: Sums = through_pipe(sums)
    here.merge(sums)
    assert here["update"].tolist() == [2, 2, 2]
    assert (here.count, here.uploaded) == (2, 24)


def test_views_of_one_tensor_travel_as_one() -> None:
    rows = [X[i] for i in range(4)] * 100
    buffers = serialization.dumps(rows).buffers
    assert sum(buffer.nbytes for buffer in buffers) == X.nbytes


def test_a_worker_that_writes_to_shared_data_has_its_own_copy() -> None:
    shared = serialization.SharedObject(X)
    first, second = (serialization.load_shared(shared.memory.fd, shared.memory.size, shared.contents) for _ in range(2))
    first.zero_()
    assert torch.equal(second, X)
    shared.memory.close()
