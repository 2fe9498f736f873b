"""The graph network against PyTorch Geometric, and against the definition written out edge by edge."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedcmoo.data.graphs import GraphBatch, GraphData
from fedcmoo.models.gnn import GNN, NNConv, Set2Set, softmax_per_graph
from fedcmoo.randomness import seeded


def random_graph(seed: int, nodes: int = 9, edges: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    """Node features, edges in no order (some nodes have none, some pairs several), edge features; float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    edge_index = torch.randint(nodes - 2, (2, edges), generator=generator)
    features = torch.randn(edges, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    return x, edge_index, features


def layer() -> NNConv:
    with seeded(torch.device("cpu"), 0):
        conv = NNConv(4, 6, edge_features=3, hidden=8).double()
        nn.init.normal_(conv.bias)
    return conv


def test_nnconv_edge_by_edge() -> None:
    x, edge_index, features = random_graph(0)
    conv = layer()
    result = conv(x, edge_index, features)
    for i in range(len(x)):
        messages = [
            x[j] @ conv.nn(features[e]).view(4, 6) for e, (j, target) in enumerate(edge_index.T.tolist()) if target == i
        ]
        mean = torch.stack(messages).mean(dim=0) if messages else torch.zeros(6, dtype=torch.float64)
        torch.testing.assert_close(result[i], conv.lin.weight @ x[i] + conv.bias + mean)


@pytest.mark.parametrize("seed", range(3))
def test_nnconv_equals_pytorch_geometric(seed: int) -> None:
    geometric = pytest.importorskip("torch_geometric.nn", reason="needs torch_geometric to compare with")
    x, edge_index, features = random_graph(seed)
    ours = layer()
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 24))
    theirs = geometric.NNConv(4, 6, network, aggr="mean").double()
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    direction = torch.randn(9, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    results = []
    for conv in (ours, theirs):
        output = conv(x, edge_index, features)
        parameters = dict(conv.named_parameters())
        values = torch.autograd.grad((output * direction).sum(), [x, features, *parameters.values()])
        results.append((output, dict(zip(["x", "edges", *parameters], values, strict=True))))
    (output, grads), (expected, expected_grads) = results
    torch.testing.assert_close(output, expected)
    assert grads.keys() == expected_grads.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected_grads[name], msg=name)


def test_set2set_equals_pytorch_geometric() -> None:
    geometric = pytest.importorskip("torch_geometric.nn", reason="needs torch_geometric to compare with")
    with seeded(torch.device("cpu"), 0):
        ours, theirs = Set2Set(5, steps=3).double(), geometric.Set2Set(5, processing_steps=3).double()
        x = torch.randn(10, 5, dtype=torch.float64, requires_grad=True)
    theirs.load_state_dict(ours.state_dict())
    graph = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 3, 3])
    result, expected = ours(x, graph, 4), theirs(x, graph)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(
        torch.autograd.grad(result.square().sum(), x), torch.autograd.grad(expected.square().sum(), x)
    )


def test_softmax_per_graph() -> None:
    scores = torch.tensor([1.0, 2.0, 1000.0, -5.0, 3.0])
    graph = torch.tensor([0, 0, 1, 2, 2])
    expected = torch.cat([scores[:2].softmax(0), torch.ones(1), scores[3:].softmax(0)])
    torch.testing.assert_close(softmax_per_graph(scores, graph, 3), expected)


def molecules(sizes: list[int]) -> GraphData:
    generator = torch.Generator().manual_seed(0)
    atoms, pairs = sum(sizes), sum(n * n for n in sizes)
    return GraphData(
        torch.tensor(sizes),
        torch.randint(2, (atoms, 11), dtype=torch.uint8, generator=generator),
        torch.randn(atoms, 3, generator=generator),
        torch.randint(5, (pairs,), dtype=torch.uint8, generator=generator),
        [torch.arange(float(len(sizes)))],
    )


def test_count_and_shape() -> None:
    model = GNN()
    assert sum(p.numel() for p in model.parameters()) == 617_675
    assert sum(p.numel() for name, p in model.named_parameters() if name.startswith("encoder.")) == 616_960
    batch, _ = molecules([3, 5, 4]).batch(torch.tensor([2, 0]))
    assert [tuple(output.shape) for output in model(batch)] == [(2,)] * 11


def test_a_molecule_does_not_see_its_neighbours_in_the_batch() -> None:
    data, model = molecules([3, 5, 4, 6]), GNN().double()

    def double(batch: GraphBatch) -> GraphBatch:
        return GraphBatch(batch.nodes.double(), batch.edge_index, batch.edges.double(), batch.graph, batch.count)

    together = model(double(data.batch(torch.tensor([3, 1, 0]))[0]))[0]
    for place, molecule in enumerate([3, 1, 0]):
        alone = model(double(data.batch(torch.tensor([molecule]))[0]))[0]
        torch.testing.assert_close(together[place], alone[0])


def test_batch_has_all_pairs_with_their_bonds_and_lengths() -> None:
    data = molecules([3, 5, 4])
    batch, (target,) = data.batch(torch.tensor([2, 0, 2]))
    assert target.tolist() == [2, 0, 2]
    assert batch.graph.tolist() == [0] * 4 + [1] * 3 + [2] * 4
    atoms = [8, 9, 10, 11, 0, 1, 2, 8, 9, 10, 11]
    assert torch.equal(batch.nodes, data.nodes[atoms].float())
    bonds = {0: data.bonds[:9].view(3, 3), 2: data.bonds[34:].view(4, 4)}
    found = dict(zip(map(tuple, batch.edge_index.T.tolist()), batch.edges, strict=True))
    first = {0: 0, 1: 4, 2: 7}
    expected = {(a, b) for a in range(11) for b in range(11) if a != b and batch.graph[a] == batch.graph[b]}
    assert set(found) == expected
    assert len(found) == batch.edge_index.shape[1]
    for (source, place), edge in found.items():
        graph = int(batch.graph[place])
        kind = bonds[[2, 0, 2][graph]][place - first[graph], source - first[graph]]
        assert edge[:4].tolist() == [float(kind == k) for k in (1, 2, 3, 4)]
        length = torch.dist(data.positions[atoms[source]], data.positions[atoms[place]])
        torch.testing.assert_close(edge[4], length)


def test_graph_data_refuses_what_does_not_fit() -> None:
    data = molecules([3, 5])
    with pytest.raises(ValueError, match="have 8 atoms and 34 pairs"):
        GraphData(data.sizes, data.nodes[1:], data.positions, data.bonds, data.targets)
    with pytest.raises(ValueError, match="must have 2 entries"):
        GraphData(data.sizes, data.nodes, data.positions, data.bonds, [torch.zeros(3)])
