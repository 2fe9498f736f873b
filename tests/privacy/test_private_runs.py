"""Clipping and differential privacy in whole runs: sensitivity, noise, accounting and resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from campaign.loopback import Loopback
from fedcmoo import FSMGDA, MGDA, FedAvg, FedCMOO, FedCMOOPref, fit
from fedcmoo.bench import privacy as bench
from fedcmoo.compression import Identity
from fedcmoo.config import RunConfig
from fedcmoo.contributions import Stage
from fedcmoo.engines import Local
from fedcmoo.engines.local import LocalSession
from fedcmoo.engines.remote import Remote
from fedcmoo.files import DamagedError
from fedcmoo.gram import Exact, Sketch, SumOfGrams, TwoWay
from fedcmoo.methods import FedCMOOT, Method
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import DifferentialPrivacy, PrivateRun
from fedcmoo.privacy.sampling import FixedSize, Poisson, Sampling
from fedcmoo.privacy.secure import Secure
from fedcmoo.report.run_charts import curves_chart, run_chart
from fedcmoo.rounds import Ask, Server
from fedcmoo.settings import SettingsError
from fedcmoo.sums import Sums
from tests.core.problems import quadratics
from tests.core.runs import Interrupt
from tests.privacy.test_accounting import by_hand

SKETCH = Sketch(correction=False)
LOCAL: dict[str, Any] = {"client_lr": 0.1, "local_steps": 2, "batch_size": None}


def test_the_mean_has_the_stated_noise_and_the_constant_divisor() -> None:
    """With one step from x = 0, x afterwards is minus the noised sum of clipped updates over n, whoever was drawn."""
    d, n, z = 4000, 5, 3.0
    problem = quadratics(M=1, d=d, clients=20)
    privacy = DifferentialPrivacy(epsilon=100.0, delta=1e-3, noise=z)
    results = [
        fit(problem, FedAvg(**LOCAL), 1, clients_per_round=n, engine=Local(), stages=[privacy]) for _ in range(2)
    ]
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
        np.array(fit(problem, method, 1, clients_per_round=8, engine=Local(), stages=[privacy]).history[0].gram)
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


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_spends_what_dp_accounting_says_by_hand(name: str, tmp_path: Path) -> None:
    method, privacy, sampling, releases = RUNS[name]
    problem, T = quadratics(clients=sampling.N), 6

    def run(**settings: Any) -> Any:
        return fit(
            problem, method, T, clients_per_round=8, engine=Local(), folder=tmp_path, stages=[privacy], **settings
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
    settings: dict[str, Any] = {"clients_per_round": 8, "engine": Local(), "stages": [privacy], "evaluate_every": 100}
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


@pytest.mark.parametrize("content", [None, "{", "[]", '{"rounds": 3}', '{"rounds": [[1.0, "many"]]}'])
def test_a_private_run_is_not_resumed_if_the_spent_budget_is_unknown(content: str | None, tmp_path: Path) -> None:
    privacy = DifferentialPrivacy(epsilon=8.0, delta=1e-5, noise=10.0)
    settings: dict[str, Any] = {"engine": Local(), "folder": tmp_path, "stages": [privacy]}
    fit(quadratics(clients=20), FedAvg(**LOCAL), 1, **settings)
    (tmp_path / "privacy.json").unlink()
    if content is not None:
        (tmp_path / "privacy.json").write_text(content)
    with pytest.raises(DamagedError, match=r"budget spent so far, but .*privacy\.json is missing or damaged"):
        fit(quadratics(clients=20), FedAvg(**LOCAL), 2, **settings, resume=True)


def test_runs_of_the_benchmark_with_and_without_noise_clip_alike() -> None:
    assert bench.METHOD.channels([bench.stage(None)]) == bench.METHOD.channels([bench.stage(8.0)])


def test_a_private_run_is_not_resumed_without_its_privacy(tmp_path: Path) -> None:
    privacy = DifferentialPrivacy(epsilon=8.0, delta=1e-5, noise=10.0)
    settings: dict[str, Any] = {"engine": Local(), "folder": tmp_path}
    fit(quadratics(clients=20), FedAvg(**LOCAL), 1, **settings, stages=[privacy])
    for other in ([], [DifferentialPrivacy(epsilon=9.0, delta=1e-5, noise=10.0)]):
        with pytest.raises(ValueError, match="DifferentialPrivacy"):
            fit(quadratics(clients=20), FedAvg(**LOCAL), 2, **settings, stages=other, resume=True)


def test_a_round_for_which_nobody_was_drawn_is_noise_alone() -> None:
    privacy = DifferentialPrivacy(epsilon=1e3, delta=1e-5, noise=1.0)
    problem = quadratics(clients=300)
    history = fit(problem, FedAvg(**LOCAL), 20, clients_per_round=1, engine=Local(), stages=[privacy]).history
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
        fit(quadratics(), method, 1, engine=Local(), privacy=DifferentialPrivacy(epsilon=1.0, noise=10.0))


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


def test_the_report_shows_what_was_spent() -> None:
    private = fit(
        quadratics(), FedAvg(**LOCAL), 3, engine=Local(), stages=[DifferentialPrivacy(epsilon=8.0)], clients_per_round=3
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
    result = fit(problem, method, 60, clients_per_round=40, engine=Local(), stages=[privacy], evaluate_every=1000)
    bounds = [record.notes["clip/update"] for record in result.history]
    assert np.exp(np.mean(np.log(bounds[40:]))) == pytest.approx(np.median(norms), rel=0.4)
    by_hand_too = by_hand(FixedSize(50, 40), [(1.0, 10.0)] * 60)  # the votes have ten times the noise of the sum
    assert result.epsilon == pytest.approx(by_hand_too, abs=1e-6)


def test_a_bound_that_follows_a_quantile_is_resumed_and_the_same_on_nodes(tmp_path: Path) -> None:
    problem, privacy = quadratics(clients=20), DifferentialPrivacy(epsilon=8.0, delta=1e-5, quantile=0.7)
    method = FedCMOO(**LOCAL, gram=Sketch(bits=32, correction=False))
    nodes = Remote(Loopback(tmp_path / "nodes", problem, method, nodes=2, stages=[privacy]))
    settings: dict[str, Any] = {"clients_per_round": 10, "stages": [privacy], "folder": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        fit(problem, method, 6, engine=nodes, **settings, callbacks=[Interrupt(3)])
    history = fit(problem, method, 6, engine=nodes, **settings, resume=True).history
    for name in ("clip/update", "clip/gradients"):
        steps = np.diff(np.log([1.0, *(record.notes[name] for record in history)]))
        assert (np.abs(steps) > 0).all()
        assert (np.abs(steps) < 3).all()  # goes on where it was, not from the first bound


@pytest.mark.parametrize(
    ("method", "others", "error"),
    [
        (FedCMOO(**LOCAL, gram=SKETCH), [], "exact codes"),
        (FedAvg(**LOCAL), [Secure()], "constant bound"),
    ],
)
def test_what_cannot_follow_a_quantile_is_refused(method: Method, others: list[Stage], error: str) -> None:
    privacy = DifferentialPrivacy(epsilon=8.0, delta=1e-5, quantile=0.5, noise=10.0)
    with pytest.raises(ValueError, match=error):
        fit(quadratics(clients=20), method, 2, engine=Local(), stages=[*others, privacy])
