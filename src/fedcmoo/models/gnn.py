"""The graph network of QM9.

References:
    Gilmer, Schoenholz, Riley, Vinyals, Dahl: Neural Message Passing for Quantum Chemistry. ICML 2017.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from fedcmoo.data.graphs import GraphBatch

NODE_FEATURES, EDGE_FEATURES, WIDTH, ROUNDS = 11, 5, 64, 3


class GroupedEdges(NamedTuple):
    """Edges grouped into one row per target node, padded to the largest degree D."""

    source: Tensor
    """The source nodes, int64 [n, D]; 0 in the padding."""
    hidden: Tensor
    """The edge network's hidden units and a constant 1, [n, D, H + 1]; 0 in the padding."""
    degree: Tensor
    """The number of edges of each row, at least 1, [n, 1]."""


class NNConv(nn.Module):
    """Convolution on graphs whose edges carry features.

    x'_i = R x_i + bias + mean over edges (j, i) of Θ(e_ji)^T x_j, Θ a network that maps an edge to an I x O matrix.

    Θ is linear in its last layer: Θ(e) = Σ_h a_h(e) A_h + A_0, with H hidden units a_h. So the mean over edges can be
    taken before the matrices are applied:

        mean over j of Θ(e_ji)^T x_j  =  Σ_h A_h^T s_ih  +  A_0^T s_i0,    s_ih = mean over j of a_h(e_ji) x_j

    which takes O(I H) for each edge and O(I O H) for each node, where building Θ(e) takes O(I O H) for each edge.

    Parameters have the names and shapes of PyTorch Geometric's NNConv(I, O, Sequential(Linear(D, H), ReLU(),
    Linear(H, I * O)), aggr="mean"), so either's `state_dict` can be loaded into the other.

    Args:
        in_channels: I.
        out_channels: O.
        edge_features: D, the size of an edge's features.
        hidden: H, the edge network's hidden units.
    """

    def __init__(self, in_channels: int, out_channels: int, edge_features: int, hidden: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.nn = nn.Sequential(
            nn.Linear(edge_features, hidden), nn.ReLU(), nn.Linear(hidden, in_channels * out_channels)
        )
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, edge_index: Tensor, edges: Tensor) -> Tensor:
        """Nodes [n, I], edges edge_index[0] -> edge_index[1] (int64 [2, E]), their features [E, D] -> nodes [n, O]."""
        return self.convolve(x, self.group(edge_index, edges, len(x)))

    def group(self, edge_index: Tensor, edges: Tensor, nodes: int) -> GroupedEdges:
        """The part that depends on the edges only, computed once for several convolutions of the same graph."""
        target, order = edge_index[1].sort(stable=True)
        source = edge_index[0][order]
        degree = torch.bincount(target, minlength=nodes)
        slot = torch.arange(len(target), device=target.device) - (degree.cumsum(0) - degree)[target]
        widest = int(degree.max())
        hidden = pad(relu(self.nn[0](edges[order])), (0, 1), value=1.0)
        grouped = hidden.new_zeros(nodes, widest, hidden.shape[1]).index_put((target, slot), hidden)
        sources = source.new_zeros(nodes, widest).index_put((target, slot), source)
        return GroupedEdges(sources, grouped, degree.clamp(min=1)[:, None].to(hidden.dtype))

    def convolve(self, x: Tensor, edges: GroupedEdges) -> Tensor:
        """Nodes [n, I] -> nodes [n, O], over the edges grouped by `group`."""
        weight, bias = self.nn.get_parameter("2.weight"), self.nn.get_parameter("2.bias")
        matrices = torch.cat([weight, bias[:, None]], dim=1)  # [I O, H + 1]
        matrices = matrices.view(self.in_channels, self.out_channels, -1).permute(2, 0, 1)  # [H + 1, I, O]
        sums = edges.hidden.transpose(1, 2) @ x[edges.source]  # [n, H + 1, I]
        mean = sums.flatten(1) @ matrices.reshape(-1, self.out_channels) / edges.degree
        root: Tensor = self.lin(x)
        return mean + root + self.bias


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

    def __init__(self) -> None:
        super().__init__()
        self.lin0 = nn.Linear(NODE_FEATURES, WIDTH)
        self.conv = NNConv(WIDTH, WIDTH, EDGE_FEATURES, hidden=128)
        self.gru = nn.GRUCell(WIDTH, WIDTH)
        self.set2set = Set2Set(WIDTH, steps=3)
        self.lin1 = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, graphs: GraphBatch) -> Tensor:
        x = relu(self.lin0(graphs.nodes))
        edges = self.conv.group(graphs.edge_index, graphs.edges, len(x))
        for _ in range(ROUNDS):
            x = self.gru(relu(self.conv.convolve(x, edges)), x)
        return relu(self.lin1(self.set2set(x, graphs.graph, graphs.count)))


class GNN(nn.Module):
    """A graph network, and a linear decoder per objective.

    With eleven objectives it has 617,675 parameters, 616,960 of them in the encoder.

    Args:
        objectives: the number of objectives M.

    Input a `GraphBatch` of B graphs; output M tensors [B].
    """

    shared: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, objectives: int = 11) -> None:
        super().__init__()
        self.encoder = MoleculeEncoder()
        self.decoders = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(objectives))

    def forward(self, graphs: GraphBatch) -> tuple[Tensor, ...]:
        features = self.encoder(graphs)
        return tuple(decoder(features).squeeze(1) for decoder in self.decoders)
