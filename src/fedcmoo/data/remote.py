"""Clients whose data are on other machines: a server, or one of several sites, only knows their number."""

from collections.abc import Mapping, Sequence
from typing import Any, overload


class NotHereError(LookupError):
    """Raised on access to the data of a client on another machine."""


class RemoteClients(Sequence[Any]):
    """N clients, of which only some have their data here.

    Args:
        N: the number of all clients.
        here: the data of the local clients, by client number; empty on a server.

    >>> clients = RemoteClients(5, here={2: "the data of client 2"})
    >>> len(clients), clients[2]
    (5, 'the data of client 2')
    """

    def __init__(self, N: int, here: Mapping[int, Any] | None = None) -> None:
        self.here = dict(here or {})
        if not all(0 <= i < N for i in self.here):
            raise ValueError(f"clients here must be from 0 to N - 1 ({N - 1}), but got {sorted(self.here)}")
        self.N = N

    def __len__(self) -> int:
        return self.N

    @overload
    def __getitem__(self, i: int) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Any]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self.N))]
        if not 0 <= i < self.N:
            raise IndexError(f"there are {self.N} clients, but number {i} was asked for")
        if i not in self.here:
            raise NotHereError(f"the data of client {i} are on another machine; here are those of {sorted(self.here)}")
        return self.here[i]
