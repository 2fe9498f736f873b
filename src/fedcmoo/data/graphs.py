"""Molecules as complete graphs, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BOND_TYPES = 4


@dataclass(frozen=True)
class GraphBatch:
    """Several graphs as one: nodes are numbered across all graphs, edges join nodes of the same graph.

    Attributes:
        nodes: features of the nodes, [n, F].
        edge_index: source and target node of each edge, int64 [2, E].
        edges: features of the edges, [E, D].
        graph: the graph index of each node, int64 [n], ascending.
        count: the number of graphs B.
    """

    nodes: Tensor
    edge_index: Tensor
    edges: Tensor
    graph: Tensor
    count: int

    def to(self, device: torch.device | str) -> GraphBatch:
        """The same batch on a device."""
        parts = (self.nodes, self.edge_index, self.edges, self.graph)
        nodes, edge_index, edges, graph = (part.to(device) for part in parts)
        return GraphBatch(nodes, edge_index, edges, graph, self.count)


class GraphData:
    """N molecules with M targets each, as `Data`.

    Within a molecule every atom is joined to every other. An edge's features are its bond type (one of four, or
    none) and its length. Edges are made for each batch, since storing them for all molecules of QM9 would take a
    gigabyte.

    Args:
        sizes: the number of atoms of each molecule, int64 [N].
        nodes: features of all atoms, molecule after molecule, uint8 [A, F] with A = sum of sizes.
        positions: the atoms' coordinates, float32 [A, 3].
        bonds: for each molecule of n atoms the n x n matrix of bond types, row by row: 0 for none, 1 to 4;
            uint8 [sum of n^2].
        targets: M tensors of N numbers.
    """

    def __init__(
        self, sizes: Tensor, nodes: Tensor, positions: Tensor, bonds: Tensor, targets: Sequence[Tensor]
    ) -> None:
        atoms, pairs = int(sizes.sum()), int((sizes**2).sum())
        if len(nodes) != atoms or len(positions) != atoms or len(bonds) != pairs:
            raise ValueError(
                f"molecules of these sizes have {atoms} atoms and {pairs} pairs of them, but got "
                f"{len(nodes)} nodes, {len(positions)} positions and {len(bonds)} bonds"
            )
        for target in targets:
            if len(target) != len(sizes):
                raise ValueError(f"every target must have {len(sizes)} entries, but one has {len(target)}")
        self.sizes = sizes
        self.nodes = nodes
        self.positions = positions
        self.bonds = bonds
        self.targets = tuple(targets)
        self._first_atom = sizes.cumsum(0) - sizes
        self._first_pair = (sizes**2).cumsum(0) - sizes**2

    def __len__(self) -> int:
        return len(self.sizes)

    def batch(self, index: Tensor) -> tuple[GraphBatch, tuple[Tensor, ...]]:
        sizes = self.sizes[index]
        atoms = _ranges(self._first_atom[index], sizes)
        graph = torch.arange(len(index)).repeat_interleave(sizes)
        source, target, bond = self._pairs(index, sizes)
        positions = self.positions[atoms]
        length = (positions[source] - positions[target]).norm(dim=1, keepdim=True)
        kind = torch.eye(BOND_TYPES + 1)[bond, 1:]
        batch = GraphBatch(
            self.nodes[atoms].float(),
            torch.stack([source, target]),
            torch.cat([kind, length], dim=1),
            graph,
            len(index),
        )
        return batch, tuple(values[index] for values in self.targets)

    def _pairs(self, index: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Source, target and bond type of each pair of different atoms of a molecule; ordered by target."""
        squares = sizes**2
        bond = self.bonds[_ranges(self._first_pair[index], squares)].long()
        place = _ranges(torch.zeros_like(squares), squares)
        size = sizes.repeat_interleave(squares)
        first = (sizes.cumsum(0) - sizes).repeat_interleave(squares)
        row, column = place // size, place % size
        different = row != column
        return (first + column)[different], (first + row)[different], bond[different]


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate the ranges start, start + 1, ..., start + length - 1."""
    before = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum())) + (starts - before).repeat_interleave(lengths)
