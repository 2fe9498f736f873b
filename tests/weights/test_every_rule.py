"""What all weighting rules share, for Gram matrices and for losses: size, order, state, the same bits on engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from campaign.loopback import Loopback
from fedcmoo import FedCMOO, Result, fit
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.methods import Scalarized
from fedcmoo.methods.base import reweigh
from fedcmoo.methods.scalarized import LAST_LOSSES
from fedcmoo.randomness import seeded
from fedcmoo.rounds import Server
from fedcmoo.run_folder import holds_run
from fedcmoo.types import Matrix, Vector
from fedcmoo.weights import TORCHJD, WEIGHTS
from fedcmoo.weights.base import Rule, weigh
from fedcmoo.weights.scalarization import SCALARIZATIONS, LossRule
from fedcmoo.worker import Worker
from tests.core.problems import quadratics
from tests.core.test_weights import gram

ORDERED = ("krum", "pcd", "pcgrad", "gradvac", "random")
"""Rules that treat objectives by their order or at random."""

FIXED_STEPS = ("modo", "sdmgrad")
"""Rules that take gradient steps of a fixed size."""

MAY_BE_NEGATIVE = ("imtl-g", "aligned-mtl", "gradvac", "cosmos", "pbi")
"""Rules that may train against an objective."""

KINDS = ("plain", "duplicate", "zero", "opposite")
LOSSES = ([2.0, 0.3, 9.0, 1.0], [1.5, 0.29, 9.1, 0.0], [0.0, 0.0, 0.0, 0.0], [1e-9, 1e9, 1.0, 1.0])

SETTINGS = {"client_lr": 0.05, "local_steps": 2, "batch_size": 2}


@cache
def make(name: str) -> Rule:
    if name in TORCHJD:
        pytest.importorskip("torchjd", reason="the extra torchjd is not installed")
    if name == "nash-mtl":
        pytest.importorskip("ecos", reason="ecos is not installed")
    return WEIGHTS[name]()


def method(name: str) -> FedCMOO | Scalarized:
    """The method that a rule belongs to."""
    if name in SCALARIZATIONS:
        return Scalarized(weights=SCALARIZATIONS[name](), **SETTINGS)  # type: ignore[arg-type]
    return FedCMOO(weights=make(name), **SETTINGS)  # type: ignore[arg-type]


def weights(rule: Rule, G: Matrix, w: Vector | None = None) -> Vector:
    """The rule's weights in a first round, as `reweigh` computes them."""
    with seeded(torch.device("cpu"), 0, "weights"):
        return weigh(rule, np.full(len(G), 1 / len(G)) if w is None else w, G, {})


def check_size(name: str, w: Vector) -> None:
    """Weights that training can use: finite, absolute values that sum to one, mostly none negative."""
    assert w.shape == (4,)
    assert np.isfinite(w).all()
    if name == "at-least-equal":
        assert w.min() >= 1 / 4
        assert w.max() <= 1 / 2
    else:
        assert np.abs(w).sum() == pytest.approx(1)
    if name not in MAY_BE_NEGATIVE:
        assert w.min() >= -1e-12


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_gram_matrices_of_every_kind_can_be_used(name: str) -> None:
    """With noise that makes them indefinite too, and of gradients that are zero."""
    for seed, kind in enumerate(KINDS):
        G = gram(4, 9, seed, kind)
        noise = np.random.default_rng(seed).normal(scale=1e-3 * np.diag(G).max(), size=G.shape)
        for matrix in (G, G + noise + noise.T, np.zeros((4, 4))):
            check_size(name, weights(make(name), matrix))


@pytest.mark.parametrize("name", SCALARIZATIONS)
def test_weights_of_losses_of_every_size_can_be_used(name: str) -> None:
    memory: dict[str, Tensor] = {}
    for losses in LOSSES:
        check_size(name, SCALARIZATIONS[name]()(np.array(losses), memory))


@pytest.mark.parametrize("name", [name for name in (*WEIGHTS, *SCALARIZATIONS) if name not in ORDERED])
def test_the_order_of_objectives_does_not_matter(name: str) -> None:
    order = np.array([2, 0, 3, 1])
    if name in SCALARIZATIONS:
        rule = SCALARIZATIONS[name]()
        memories: list[dict[str, Tensor]] = [{}, {}]
        for losses in map(np.array, LOSSES):
            assert np.allclose(rule(losses, memories[0])[order], rule(losses[order], memories[1]))
        return
    for seed in range(3):
        G = gram(4, 9, seed, "plain")
        G /= np.diag(G).max()
        assert np.allclose(weights(make(name), G)[order], weights(make(name), G[np.ix_(order, order)]), atol=2e-3)


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name not in FIXED_STEPS])
def test_a_common_factor_of_all_losses_does_not_matter(name: str) -> None:
    G = gram(3, 9, 1, "plain")
    G /= np.diag(G).max()
    assert np.allclose(weights(make(name), 100 * G), weights(make(name), G), atol=0.02)


@pytest.mark.parametrize("name", [*WEIGHTS, *SCALARIZATIONS])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_leaves_the_weights_as_they_are(name: str, value: float) -> None:
    """A G of which nothing is known, or that overflowed, and losses alike; the rule remembers nothing of it."""
    problem = quadratics(M=3)
    worker, before = Worker(problem, method(name).channels(), seed=0), np.array([0.5, 0.3, 0.2])
    state = worker.model.state
    server = Server(worker.sizes, 0, problem.N, state.x, state.buffers, state.counters, before, cohort=(0, 1))
    if name in SCALARIZATIONS:
        server.memory[LAST_LOSSES] = torch.full((3,), value, dtype=torch.float64)
        next(method(name).round(server))
    else:
        reweigh(server, make(name), np.full((3, 3), value))
    assert server.w.tolist() == before.tolist()
    assert not server.memory


def own(memory: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """What one of several rules has in a common memory."""
    return {key.removeprefix(f"{name}/"): value for key, value in memory.items() if key.startswith(f"{name}/")}


def next_of(names: tuple[str, ...], memory: dict[str, Tensor]) -> str:
    turn = int(memory.get("turn", torch.tensor(0)))
    memory["turn"] = torch.tensor(turn + 1)
    return names[turn % len(names)]


@dataclass(frozen=True)
class GramiansInTurn:
    """All rules for Gram matrices, one a round, each with a memory of its own, so that an engine starts only once."""

    names: tuple[str, ...]

    def __call__(self, w: Vector, G: Matrix) -> Vector:
        return self.remember(w, G, {})

    def remember(self, w: Vector, G: Matrix, memory: dict[str, Tensor]) -> Vector:
        name = next_of(self.names, memory)
        mine = own(memory, name)
        new = weigh(make(name), w, G, mine)
        memory |= {f"{name}/{key}": value for key, value in mine.items()}
        return new


@dataclass(frozen=True)
class LossesInTurn(LossRule):
    """The same of the rules for losses."""

    names: tuple[str, ...]

    def __call__(self, losses: Vector, memory: dict[str, Tensor]) -> Vector:
        name = next_of(self.names, memory)
        mine = own(memory, name)
        new = SCALARIZATIONS[name]()(losses, mine)
        memory |= {f"{name}/{key}": value for key, value in mine.items()}
        return new


def usable(name: str) -> bool:
    try:
        make(name)
    except pytest.skip.Exception:
        return False
    return True


class InTurn(NamedTuple):
    """A method whose rules have turns, and their names."""

    method: FedCMOO | Scalarized
    names: tuple[str, ...]

    def run(self, engine: Engine, turns: int = 2, folder: Path | None = None) -> Result:
        """Every rule has so many turns, and the first round one more: rules for losses have none in it."""
        settings = {"clients_per_round": 2, "seed": 1, "evaluate_every": 1, "engine": engine, "folder": folder}
        settings["resume"] = folder is not None and holds_run(folder)
        return fit(quadratics(M=3), self.method, turns * len(self.names) + 1, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def in_turn() -> list[InTurn]:
    gramians, losses = tuple(name for name in WEIGHTS if usable(name)), tuple(SCALARIZATIONS)
    return [
        InTurn(FedCMOO(weights=GramiansInTurn(gramians), **SETTINGS), gramians),  # type: ignore[arg-type]
        InTurn(Scalarized(weights=LossesInTurn(losses), **SETTINGS), losses),  # type: ignore[arg-type]
    ]


@pytest.fixture(scope="module")
def local(in_turn: list[InTurn]) -> list[Result]:
    return [rules.run(Local()) for rules in in_turn]


def check_same(found: Result, expected: Result, names: tuple[str, ...]) -> None:
    for turn, (mine, yours) in enumerate(zip(found.history, expected.history, strict=True)):
        assert mine.without_time() == yours.without_time(), f"near {names[turn % len(names)]}"
    assert torch.equal(found.model.x, expected.model.x)  # type: ignore[arg-type]


@pytest.mark.parametrize("which", [0, 1], ids=["gram", "losses"])
def test_every_rule_is_resumed_exactly(which: int, in_turn: list[InTurn], local: list[Result], tmp_path: Path) -> None:
    """After one turn of each: random rules draw the same, and what rules remember is kept."""
    rules = in_turn[which]
    rules.run(Local(), turns=1, folder=tmp_path)
    torch.manual_seed(123)  # the global generator must not matter
    check_same(rules.run(Local(), folder=tmp_path), local[which], rules.names)


@pytest.fixture(scope="module")
def ray_engine() -> Iterator[Engine]:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    from fedcmoo.engines.ray import Ray, connect

    connect(Ray(workers=1))
    yield Ray(workers=1)
    ray.shutdown()


@pytest.mark.parametrize("which", [0, 1], ids=["gram", "losses"])
@pytest.mark.parametrize("kind", ["pool", "ray", "nodes"])
def test_every_rule_gives_the_same_bits_on_every_engine(
    kind: str,
    which: int,
    in_turn: list[InTurn],
    local: list[Result],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Nodes are those of the Flower application, in this process, made anew for every message."""
    rules = in_turn[which]
    engines: dict[str, Callable[[], Engine]] = {
        "pool": lambda: Pool(workers=2),
        "ray": lambda: request.getfixturevalue("ray_engine"),
        "nodes": lambda: Remote(Loopback(tmp_path, quadratics(M=3), rules.method, nodes=2)),
    }
    check_same(rules.run(engines[kind]()), local[which], rules.names)
