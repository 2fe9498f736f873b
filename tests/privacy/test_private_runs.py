"""Clipping and differential privacy in whole runs: sensitivity, noise, accounting and resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedcmoo import FSMGDA, MGDA, FedAvg, FedCMOO, FedCMOOPref, Problem, fit
from fedcmoo.callbacks import Callback
from fedcmoo.compression import Identity
from fedcmoo.config import RunConfig
from fedcmoo.contributions import add_reply, reply
from fedcmoo.engines import Local
from fedcmoo.engines.local import LocalSession
from fedcmoo.engines.remote import Remote
from fedcmoo.engines.remote.loopback import Loopback
from fedcmoo.gram import Exact, OneWay, Sketch, SumOfGrams, TwoWay
from fedcmoo.history import Record
from fedcmoo.messages import Message
from fedcmoo.methods import FedCMOOT, Method
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import DifferentialPrivacy, PrivateRun
from fedcmoo.privacy.sampling import FixedSize, Poisson, Sampling
from fedcmoo.report.run_charts import curves_chart, run_chart
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.settings import SettingsError
from fedcmoo.sums import Sums
from fedcmoo.worker import Worker
from tests.core.problems import classification, quadratics
from tests.privacy.test_accounting import by_hand

SKETCH = Sketch(correction=False)
LOCAL: dict[str, Any] = {"client_lr": 0.1, "local_steps": 2, "batch_size": None}
BOUND, GRADIENTS = 0.2, 0.5


def far_away(clients: int = 6) -> Problem:
    """Clients whose gradients are a thousand times larger than the bounds."""
    problem = quadratics(clients=clients)
    return replace(problem, clients=[(x, 1000 * y) for x, y in problem.clients])


@pytest.mark.parametrize("gram", [SKETCH, Exact(), OneWay(budget=2.0), Sketch(), SumOfGrams()])
@pytest.mark.parametrize("problem", [far_away(), quadratics()])
def test_every_reply_as_it_is_added_is_within_its_bound(gram: Any, problem: Problem) -> None:
    method = FedCMOO(**LOCAL, gram=gram)
    channels = method.channels([Clip(BOUND, GRADIENTS)])
    worker = Worker(problem, channels, seed=0)
    messages = {"jacobian": message_of(gram), "train": Message(w=torch.tensor([0.5, 0.5], dtype=torch.float64))}
    for i in range(problem.N):
        client = worker.client(worker.model.state, 0, i)
        payload = reply(channels, client, messages)
        hostile = Message(**{n: a * 1e6 if a.is_floating_point() else a for n, a in payload.items()})
        for sent in (payload, hostile):
            sums = Sums()
            add_reply(sums, channels, list(messages), sent, worker.sizes, "client")
            for name, total in sums.totals.items():
                bound = BOUND if name.startswith("train/") else GRADIENTS
                degree = 2 if name.endswith("/own") else 1
                assert total.double().norm().item() <= bound**degree


def message_of(gram: Any) -> Message:
    return Message(seed=torch.tensor([5])) if isinstance(gram, Sketch) else Message()


def test_a_round_with_clipping_moves_the_model_by_at_most_the_bound() -> None:
    result = fit(far_away(), FedAvg(**LOCAL), 1, engine=Local(), stages=[Clip(BOUND)])
    moved = torch.linalg.vector_norm(result.model.x).item()
    assert 0 < moved <= BOUND
    free = fit(far_away(), FedAvg(**LOCAL), 1, engine=Local()).model
    assert torch.linalg.vector_norm(free.x) > 100 * BOUND


def test_a_bound_that_nobody_reaches_changes_nothing() -> None:
    method = FedCMOO(**LOCAL)
    runs = [fit(quadratics(), method, 3, engine=Local(), stages=stages) for stages in ((), [Clip(1e6)])]
    assert [r.without_time() for r in runs[0].history] == [r.without_time() for r in runs[1].history]


def test_the_mean_has_the_stated_noise_and_the_constant_divisor() -> None:
    """With one step from x = 0, x afterwards is minus the noised sum of clipped updates over n, whoever was drawn."""
    d, n, z = 4000, 5, 3.0
    problem = quadratics(M=1, d=d, clients=20)
    privacy = DifferentialPrivacy(epsilon=100.0, delta=1e-3, noise=z)
    results = [fit(problem, FedAvg(**LOCAL), 1, clients_per_round=n, engine=Local(), privacy=privacy) for _ in range(2)]
    noise = [result.model.x.detach().numpy() for result in results]  # type: ignore[operator]
    sums = [x * n for x in noise]
    for total in sums:
        within = np.linalg.norm(total) ** 2 / z**2  # chi-square, but for clipped updates of at most 20 clients
        signal = 20**2 / z**2
        assert stats.chi2.ppf(1e-6, d) < within < stats.ncx2.ppf(1 - 1e-6, d, signal)
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.2  # equal seeds, other noise


@pytest.mark.parametrize("method", [FedCMOO(**LOCAL, gram=Exact()), FedCMOO(**LOCAL, gram=SKETCH), FSMGDA(**LOCAL)])
def test_the_gram_matrix_has_no_bias_from_the_noise(method: Method) -> None:
    """At a point where all gradients are zero, the estimates of G scatter around zero."""
    problem = quadratics(d=50, clients=8)
    problem = replace(problem, clients=[(x, 0 * y) for x, y in problem.clients])
    privacy = DifferentialPrivacy(epsilon=1e6, delta=1e-3, noise=1.0, sampling="fixed-size", clip=1e-3)
    grams = [
        np.array(fit(problem, method, 1, clients_per_round=8, engine=Local(), privacy=privacy).history[0].gram)
        for _ in range(40)
    ]
    traces = np.array([np.trace(G) for G in grams])
    assert abs(traces.mean()) < 5 * traces.std() / np.sqrt(len(traces))
    assert traces.std() > 0


RUNS: dict[str, tuple[Method, DifferentialPrivacy, Sampling, Callable[[float, int], list[tuple[float, ...]]]]] = {
    "FedAvg, Poisson": (
        FedAvg(**LOCAL),
        DifferentialPrivacy(epsilon=4.0, delta=1e-5),
        Poisson(40, 8),
        lambda z, T: [(z,)] * T,
    ),
    "FedCMOO, Poisson, G in every other round": (
        FedCMOO(**LOCAL, gram=SKETCH, gram_every=2),
        DifferentialPrivacy(epsilon=4.0, delta=1e-5, clip=0.3),
        Poisson(40, 8),
        lambda z, T: [(z,) if t % 2 else (z, z) for t in range(T)],
    ),
    "FedCMOO, fixed size": (
        FedCMOO(**LOCAL, gram=Exact()),
        DifferentialPrivacy(epsilon=10.0, delta=1e-5, sampling="fixed-size"),
        FixedSize(40, 8),
        lambda z, T: [(z, z)] * T,
    ),
    "FSMGDA, everybody": (
        FSMGDA(**LOCAL),
        DifferentialPrivacy(epsilon=10.0, delta=1e-5, sampling="fixed-size", clip=3.0),
        FixedSize(8, 8),
        lambda z, T: [(z,)] * T,
    ),
}


class Interrupt(Callback):
    """Ctrl-C after some round, or within it."""

    def __init__(self, after: int) -> None:
        self.after = after

    def after_round(self, record: Record) -> None:
        if record.round == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_spends_what_dp_accounting_says_by_hand(name: str, tmp_path: Path) -> None:
    method, privacy, sampling, releases = RUNS[name]
    problem, T = quadratics(clients=sampling.N), 6

    def run(**settings: Any) -> Any:
        return fit(
            problem, method, T, clients_per_round=8, engine=Local(), folder=tmp_path, privacy=privacy, **settings
        )

    with pytest.raises(KeyboardInterrupt):
        run(callbacks=[Interrupt(3)])
    result = run(resume=True)
    assert len(result.history) == T
    z = PrivateRun(privacy, method.releases, problem, 8, T).multiplier
    for record in (result.history[1], result.history[-1]):
        assert record.notes["epsilon"] == pytest.approx(by_hand(sampling, releases(z, record.round)), abs=1e-6)
    assert 0.99 * privacy.epsilon <= result.epsilon <= privacy.epsilon  # calibrated


@dataclass(frozen=True)
class FailsInRound(Local):
    """The local engine, which breaks down in some round after its clients have replied."""

    round: int = 0

    def start(self, *args: Any) -> LocalSession:
        session, fails_in = super().start(*args), self.round

        class Failing(type(session)):  # type: ignore[misc]
            def ask(self, ask: Ask, server: Server) -> Sums:
                sums: Sums = super().ask(ask, server)
                if server.round + 1 == fails_in:
                    raise OSError("the machine is gone")
                return sums

        session.__class__ = Failing
        return session


def test_a_round_that_was_lost_stays_spent(tmp_path: Path) -> None:
    """The budget is enough for five rounds of this noise; one of them is lost, so the run ends after four."""
    z, sampling = 3.0, Poisson(40, 8)
    privacy = DifferentialPrivacy(epsilon=by_hand(sampling, [(z,)] * 5) + 1e-3, delta=1e-5, noise=z)
    settings: dict[str, Any] = {"clients_per_round": 8, "engine": Local(), "privacy": privacy, "evaluate_every": 100}
    problem = quadratics(clients=40)
    whole = fit(problem, FedAvg(**LOCAL), 100, **settings)
    assert len(whole.history) == 5
    assert whole.scores  # the last round is evaluated, also where the budget ends the run
    with pytest.raises(OSError, match="gone"):
        fit(problem, FedAvg(**LOCAL), 100, **{**settings, "engine": FailsInRound(round=3)}, folder=tmp_path)
    assert json.loads((tmp_path / "privacy.json").read_text())["rounds"] == [[z, 3]]
    resumed = fit(problem, FedAvg(**LOCAL), 100, **settings, folder=tmp_path, resume=True)
    assert [record.round for record in resumed.history] == [1, 2, 3, 4]
    assert resumed.epsilon == pytest.approx(by_hand(sampling, [(z,)] * 5), abs=1e-6)
    assert resumed.summary()["epsilon"] == resumed.epsilon


def test_a_private_run_is_not_resumed_without_its_privacy(tmp_path: Path) -> None:
    privacy = DifferentialPrivacy(epsilon=8.0, delta=1e-5)
    settings: dict[str, Any] = {"engine": Local(), "folder": tmp_path}
    fit(quadratics(clients=20), FedAvg(**LOCAL), 1, **settings, privacy=privacy)
    for other in (None, DifferentialPrivacy(epsilon=9.0, delta=1e-5)):
        with pytest.raises(ValueError, match="privacy"):
            fit(quadratics(clients=20), FedAvg(**LOCAL), 2, **settings, privacy=other, resume=True)


def test_a_round_for_which_nobody_was_drawn_is_noise_alone() -> None:
    privacy = DifferentialPrivacy(epsilon=1e3, delta=1e-5, noise=1.0)
    problem = quadratics(clients=300)
    history = fit(problem, FedAvg(**LOCAL), 20, clients_per_round=1, engine=Local(), privacy=privacy).history
    assert [] in [record.cohort for record in history]  # fails once in 10,000: 1 - (1 - 1/e)^20
    assert len(history) == 20


@pytest.mark.parametrize(
    ("method", "fix"),
    [
        (FedCMOO(**LOCAL), "correction=False"),
        (FedCMOO(**LOCAL, gram=SumOfGrams()), "correction=False"),
        (FedCMOO(**LOCAL, gram=TwoWay(Identity(), budget=2)), "Sketch"),
        (FedCMOOT(**LOCAL), "asks others"),
        (FedCMOOPref(**LOCAL, gram=SKETCH), "'losses'"),
        (MGDA(), "all clients"),
    ],
)
def test_methods_that_cannot_be_private_are_refused(method: Method, fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        fit(quadratics(), method, 1, engine=Local(), privacy=DifferentialPrivacy(epsilon=1.0))


def test_what_cannot_be_clipped_is_refused() -> None:
    with pytest.raises(ValueError, match="buffers"):
        fit(classification(), FedAvg(**LOCAL), 1, engine=Local(), stages=[Clip(1.0)])
    with pytest.raises(ValueError, match="alone to be clipped"):
        fit(quadratics(), FedCMOO(**LOCAL, gram=TwoWay(Identity(), budget=2)), 1, engine=Local(), stages=[Clip(1.0)])
    with pytest.raises(ValueError, match="last to change"):
        fit(quadratics(), FedAvg(**LOCAL), 1, stages=[Clip(1.0)], privacy=DifferentialPrivacy(epsilon=1.0))
    for bound in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            Clip(bound)
    with pytest.raises(ValueError, match="enough for one round"):
        fit(quadratics(), FedAvg(**LOCAL), 1, privacy=DifferentialPrivacy(epsilon=0.1, noise=0.1))


PRIVATE = [FedCMOO(**LOCAL, gram=SKETCH), FedCMOO(**LOCAL, gram=Exact()), FedAvg(**LOCAL), FSMGDA(**LOCAL)]
OWNS = [["f0"], ["f1"], ["f0", "f1"], [], ["f0"], ["f1"]]
WEIGHTS = [0.5, 100.0, 3.0, 1.0, 1.0, 1e-3]


def unequal(problem: Problem) -> Problem:
    """The problem with weights that differ a lot, and clients that own some of the objectives."""
    return replace(problem, owns=OWNS, weights=WEIGHTS)


@pytest.mark.parametrize("method", PRIVATE, ids=["sketch", "exact", "fedavg", "fsmgda"])
@pytest.mark.parametrize("problem", [unequal(far_away()), unequal(quadratics())], ids=["far", "near"])
def test_one_unequal_client_changes_no_sum_by_more_than_the_bound(method: Method, problem: Problem) -> None:
    """For every client, with and without it in the cohort: it moves only its own, clipped and weighted contribution."""
    privacy = DifferentialPrivacy(epsilon=8.0, clip=BOUND, clip_gradients=GRADIENTS)
    run = PrivateRun(privacy, method.releases, problem, 3, 1)
    channels = method.channels([privacy.clipping()])
    model = problem.flat_model()
    w = Message(w=torch.tensor([0.25, 0.75], dtype=torch.float64))
    messages = {name: w if name == "train" and not isinstance(method, FSMGDA) else Message() for name in channels}
    if "jacobian" in channels:
        messages = {"jacobian": message_of(method.gram), "train": w}  # type: ignore[attr-defined]
    sizes = Sizes.of(model, problem.M)
    server = Server(sizes, 0, problem.N, model.x.detach().clone(), model.buffers(), model.counters(), np.ones(2) / 2)
    run.start(server, None, resume=False)
    everyone = tuple(range(problem.N))
    with Local().start(problem, channels, 0, sizes) as session:
        whole = session.ask(Ask(messages, everyone), server)
        for i in everyone:
            rest = session.ask(Ask(messages, tuple(j for j in everyone if j != i)), server)
            for name, total in whole.totals.items():
                bound = BOUND if name.startswith("train/") else GRADIENTS
                changed = torch.linalg.vector_norm(total.double() - rest.totals[name].double()).item()
                assert changed <= bound * (1 + 1e-6)  # sums are rounded, too


@pytest.mark.parametrize("secure", [False, True])
def test_a_private_step_of_unequal_clients_is_that_on_the_central_objectives(secure: bool) -> None:
    """With all clients and noise of 1e-6, x moves by the gradient of Σ_k w_k F_k; G is that of the F_k."""
    problem = unequal(quadratics())
    p = torch.tensor(WEIGHTS, dtype=torch.float64)
    owned = torch.tensor([[f"f{k}" in names for k in range(2)] for names in OWNS], dtype=torch.float64)
    points = torch.stack([targets.mean(dim=0) for _, targets in problem.clients])  # [N, M, d]
    J = -torch.einsum("i,ik,ikd->kd", p, owned, points) / (p @ owned)[:, None]  # of ½ ||x - c||² at x = 0
    privacy = DifferentialPrivacy(epsilon=1e20, delta=1e-3, noise=1e-9, sampling="fixed-size", clip=1000.0)
    method = FedCMOO(**{**LOCAL, "local_steps": 1}, gram=Exact())
    result = fit(problem, method, 1, clients_per_round=6, engine=Local(), privacy=privacy, secure=secure)
    w = torch.tensor(list(result.history[0].weights.values()), dtype=torch.float64)
    tolerance = {"rtol": 0, "atol": 1e-4}  # that of codes of 32 bits with a bound of 1000
    torch.testing.assert_close(result.model.x.detach(), -0.1 * w @ J, **tolerance)  # type: ignore[arg-type, operator]
    assert np.allclose(result.history[0].gram or (), J @ J.T, atol=1e-2)


def test_the_divisors_do_not_depend_on_who_was_drawn() -> None:
    """Sums are divided by the expected weights, so x and G scatter around the same values whatever the cohort."""
    problem = unequal(quadratics(d=50))
    problem = replace(problem, clients=[(x, 0 * y) for x, y in problem.clients])
    privacy = DifferentialPrivacy(epsilon=1e6, delta=1e-3, noise=1.0, clip=1e-3)
    runs = [
        fit(problem, FedCMOO(**LOCAL, gram=Exact()), 1, clients_per_round=3, engine=Local(), privacy=privacy)
        for _ in range(60)
    ]
    diagonals = np.array([np.diag(run.history[0].gram or ()) for run in runs])  # no bias of either objective's
    assert (np.abs(diagonals.mean(axis=0)) < 5 * diagonals.std(axis=0) / np.sqrt(len(runs))).all()
    P_k = [sum(p for p, names in zip(WEIGHTS, OWNS, strict=True) if f"f{k}" in names) / 2 for k in range(2)]
    expected = np.sqrt(2 * 50) * (1e-3 / np.array(P_k)) ** 2  # the standard deviation of ||noise||²
    assert diagonals.std(axis=0) == pytest.approx(expected, rel=0.4)


@pytest.mark.parametrize("settings", [{"weights": WEIGHTS}, {"owns": OWNS, "weights": "samples"}])
def test_weights_and_objectives_of_a_private_run_are_public(settings: Any) -> None:
    with pytest.raises(ValueError, match="here they come from the data"):
        fit(replace(quadratics(), **settings), FedAvg(**LOCAL), 1, privacy=DifferentialPrivacy(epsilon=1.0))


def test_configurations_hold_clip_and_privacy() -> None:
    table = {"privacy": {"name": "differential", "epsilon": 2.0}, "method": {"name": "fedavg"}}
    config = RunConfig.from_table(table)
    assert config.privacy == DifferentialPrivacy(epsilon=2.0)
    assert RunConfig.from_table(config.to_table()) == config
    assert RunConfig.from_table({"clip": 0.5}).stages == (Clip(0.5),)
    with pytest.raises(SettingsError, match="has its own"):
        RunConfig.from_table({**table, "clip": 0.5})
    with pytest.raises(SettingsError, match="positive"):
        RunConfig.from_table({"clip": -0.5})


def test_nodes_that_do_not_clip_are_bounded_by_the_server(tmp_path: Path) -> None:
    problem, method = far_away(), FedAvg(**LOCAL)
    nodes = Remote(Loopback(tmp_path, problem, method, nodes=2))  # without any stage
    result = fit(problem, method, 1, engine=nodes, stages=[Clip(BOUND)])
    assert 0 < torch.linalg.vector_norm(result.model.x) <= BOUND


def test_the_report_shows_what_was_spent() -> None:
    private = fit(
        quadratics(), FedAvg(**LOCAL), 3, engine=Local(), privacy=DifferentialPrivacy(epsilon=8.0), clients_per_round=3
    )
    plain = fit(quadratics(), FedAvg(**LOCAL), 3, engine=Local())
    expected = [record.notes["epsilon"] for record in private.history]
    assert expected == sorted(expected)
    assert private.epsilon == expected[-1] <= 8.0
    for chart in (run_chart(private), curves_chart("any", {"private": [private], "plain": [plain]})):
        (line,) = next(panel for panel in chart.panels if panel.title == "privacy spent").lines
        assert list(line.y) == pytest.approx(expected)
    assert all(panel.title != "privacy spent" for panel in run_chart(plain).panels)


def test_a_bound_that_follows_a_quantile_finds_it_and_is_accounted_for() -> None:
    """Steps so short that the clients' norms stay: the bound comes down to their median, from ten times that."""
    problem, method = quadratics(clients=50), FedAvg(client_lr=1e-6, local_steps=1, batch_size=None)
    norms = [1e-6 * y.mean(dim=(0, 1)).norm().item() for _, y in problem.clients]
    privacy = DifferentialPrivacy(
        epsilon=1e5, delta=1e-5, clip=10 * np.median(norms), noise=1.0, quantile=0.5, sampling="fixed-size"
    )
    result = fit(problem, method, 60, clients_per_round=40, engine=Local(), privacy=privacy, evaluate_every=1000)
    bounds = [record.notes["clip/update"] for record in result.history]
    assert np.exp(np.mean(np.log(bounds[40:]))) == pytest.approx(np.median(norms), rel=0.4)
    by_hand_too = by_hand(FixedSize(50, 40), [(1.0, 10.0)] * 60)  # the votes have ten times the noise of the sum
    assert result.epsilon == pytest.approx(by_hand_too, abs=1e-6)


def test_a_bound_that_follows_a_quantile_is_resumed_and_the_same_on_nodes(tmp_path: Path) -> None:
    problem, privacy = quadratics(clients=20), DifferentialPrivacy(epsilon=8.0, delta=1e-5, quantile=0.7)
    method = FedCMOO(**LOCAL, gram=Sketch(bits=32, correction=False))
    nodes = Remote(Loopback(tmp_path / "nodes", problem, method, nodes=2, stages=[privacy.clipping()]))
    settings: dict[str, Any] = {"clients_per_round": 10, "privacy": privacy, "folder": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        fit(problem, method, 6, engine=nodes, **settings, callbacks=[Interrupt(3)])
    history = fit(problem, method, 6, engine=nodes, **settings, resume=True).history
    for name in ("clip/update", "clip/gradients"):
        steps = np.diff(np.log([1.0, *(record.notes[name] for record in history)]))
        assert (np.abs(steps) > 0).all()
        assert (np.abs(steps) < 3).all()  # goes on where it was, not from the first bound


@pytest.mark.parametrize(
    ("method", "settings", "error"),
    [
        (FedCMOO(**LOCAL, gram=SKETCH), {}, "exact codes"),
        (FedAvg(**LOCAL), {"secure": True}, "bound that stays"),
    ],
)
def test_what_cannot_follow_a_quantile_is_refused(method: Method, settings: dict[str, Any], error: str) -> None:
    privacy = DifferentialPrivacy(epsilon=8.0, delta=1e-5, quantile=0.5)
    with pytest.raises(ValueError, match=error):
        fit(quadratics(clients=20), method, 2, engine=Local(), privacy=privacy, **settings)
