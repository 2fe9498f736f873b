"""Randomness without a global generator: every draw comes from (seed, round, client, purpose).

So the order of clients, the number of workers and the engine do not change results.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit seed for one place and purpose; the same on every platform.

    >>> derive(0, 3, 7, "batches") == derive(0, 3, 7, "batches")
    True
    >>> derive(0, 3, 7, "batches") == derive(0, 3, 8, "batches")
    False
    """
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *path: int | str) -> torch.Generator:
    """A torch generator (on the CPU) for one place and purpose."""
    return torch.Generator().manual_seed(derive(seed, *path))


def numpy_generator(seed: int, *path: int | str) -> np.random.Generator:
    """A NumPy generator for one place and purpose."""
    return np.random.default_rng(derive(seed, *path))


@contextmanager
def seeded(device: torch.device, seed: int, *path: int | str) -> Iterator[None]:
    """Seed torch's global generators inside the block and restore them afterwards: dropout layers use no others."""
    if device.type == "cpu":
        # Not torch.manual_seed: it also records the call stack for later devices, which takes a millisecond.
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(derive(seed, *path))
        try:
            yield
        finally:
            torch.default_generator.set_state(before)
        return
    with torch.random.fork_rng(devices=[device], device_type=device.type):
        torch.manual_seed(derive(seed, *path))
        yield


class Repeat:
    """The current states of a device's torch generator and another generator, to draw the same numbers again."""

    def __init__(self, device: torch.device, generator: torch.Generator) -> None:
        self.device, self.generator = device, generator
        self.states = self._read()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same numbers inside the block; afterwards, the generators are restored."""
        present = self._read()
        self._write(self.states)
        try:
            yield
        finally:
            self._write(present)

    def _read(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.device.type == "cpu":
            return torch.default_generator.get_state(), self.generator.get_state()
        return torch.get_device_module(self.device).get_rng_state(self.device), self.generator.get_state()

    def _write(self, states: tuple[torch.Tensor, torch.Tensor]) -> None:
        if self.device.type == "cpu":
            torch.default_generator.set_state(states[0])
        else:
            torch.get_device_module(self.device).set_rng_state(states[0], self.device)
        self.generator.set_state(states[1])
