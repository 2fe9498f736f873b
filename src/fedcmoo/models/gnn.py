"""The graph network of QM9."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from fedcmoo.data.graphs import GraphBatch
from fedcmoo.models.nnconv import NNConv

WIDTH = 64


class Set2Set(nn.Module):
    """One vector per graph, independent of the order of its nodes (Vinyals et al., Order Matters, 2016).

    An LSTM emits a query q; r is the mean of the graph's nodes x weighted by softmax(q · x) over the graph; and (q, r)
    is the LSTM's next input. After the last step (q, r) is the result.

    Args:
        channels: the size C of a node's vector.
        steps: the number of queries.
    """

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.lstm = nn.LSTM(2 * channels, channels)

    def forward(self, x: Tensor, graph: Tensor, count: int) -> Tensor:
        """Nodes [n, C] of `count` graphs, with the graph of each node (int64 [n]) -> [count, 2 C]."""
        asked = x.new_zeros(count, 2 * x.shape[1])
        state = (x.new_zeros(1, count, x.shape[1]), x.new_zeros(1, count, x.shape[1]))
        for _ in range(self.steps):
            output, state = self.lstm(asked[None], state)
            question = output[0]
            weight = softmax_per_graph((x * question[graph]).sum(dim=1), graph, count)
            answer = torch.zeros_like(question).index_add(0, graph, weight[:, None] * x)
            asked = torch.cat([question, answer], dim=1)
        return asked


def softmax_per_graph(scores: Tensor, graph: Tensor, count: int) -> Tensor:
    """The softmax of scores [n] among the nodes of each graph, [n]."""
    largest = scores.new_full((count,), -torch.inf).scatter_reduce(0, graph, scores.detach(), "amax")
    exponential = (scores - largest[graph]).exp()
    total = scores.new_zeros(count).index_add(0, graph, exponential)
    return exponential / total[graph]


class MoleculeEncoder(nn.Module):
    """The encoder: three rounds of message passing between atoms, then a readout of 64 numbers per molecule."""

    def __init__(self, node_features: int, edge_features: int, rounds: int = 3) -> None:
        super().__init__()
        self.rounds = rounds
        self.lin0 = nn.Linear(node_features, WIDTH)
        self.conv = NNConv(WIDTH, WIDTH, edge_features, hidden=128)
        self.gru = nn.GRUCell(WIDTH, WIDTH)
        self.set2set = Set2Set(WIDTH, steps=3)
        self.lin1 = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, graphs: GraphBatch) -> Tensor:
        x = relu(self.lin0(graphs.nodes))
        edges = self.conv.group(graphs.edge_index, graphs.edges, len(x))
        for _ in range(self.rounds):
            x = self.gru(relu(self.conv.convolve(x, edges)), x)
        return relu(self.lin1(self.set2set(x, graphs.graph, graphs.count)))


class GNN(nn.Module):
    """A graph network, and a linear decoder per objective.

    With eleven objectives it has 617,675 parameters, 616,960 of them in the encoder.

    Args:
        objectives: the number of objectives M.
        node_features: the size of a node's features.
        edge_features: the size of an edge's features.

    Input a `GraphBatch` of B graphs; output M tensors [B].
    """

    shared: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, objectives: int = 11, node_features: int = 11, edge_features: int = 5) -> None:
        super().__init__()
        self.encoder = MoleculeEncoder(node_features, edge_features)
        self.decoders = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(objectives))

    def forward(self, graphs: GraphBatch) -> tuple[Tensor, ...]:
        features = self.encoder(graphs)
        return tuple(decoder(features).squeeze(1) for decoder in self.decoders)
