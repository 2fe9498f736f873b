"""What targets make of runs with known numbers: tables in the paper's arrangement, charts, and every claim measured."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from fedcmoo.reproduce.claims import FAILS, HOLDS, all_claims, judge
from fedcmoo.reproduce.command import choose, make, needed_runs, planned, with_data
from fedcmoo.reproduce.outcome import Outcome
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.summary import count_verdicts, write_interactive, write_summary
from fedcmoo.reproduce.targets import TARGETS
from fedcmoo.runs import Runs
from tests.reproduce.fabricate import fabricate

STUDY = Study(rounds=12, seeds=(0, 1))
FABRICATED = [name for name in TARGETS if name != "curves"]  # radial has the runs of CelebA already


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    runs = Runs(tmp_path_factory.mktemp("runs"))
    fabricate(choose(FABRICATED), STUDY, runs)
    return {target.name: make(target, STUDY, runs, print) for target in choose(["all"])}


def cells(outcome: Outcome, table: int, row: str) -> list[str]:
    (found,) = (list(cells) for cells in outcome.tables[table].rows if cells[0] == row)
    return found


def values(outcome: Outcome, claim: str) -> list[float]:
    (found,) = (list(v.values) for v in outcome.verdicts if v.claim.id == claim)
    return found


def test_all_are_there(outcomes: dict[str, Outcome]) -> None:
    assert list(outcomes) == list(TARGETS)


def test_every_claim_is_measured_once_for_every_seed(outcomes: dict[str, Outcome]) -> None:
    measured = {v.claim.id: len(v.values) for outcome in outcomes.values() for v in outcome.verdicts}
    assert measured == {claim.id: 2 for claim in all_claims()}


def test_every_table_and_chart_says_its_scale(outcomes: dict[str, Outcome]) -> None:
    for outcome in outcomes.values():
        assert outcome.scale.startswith("small scale")
        notes = [table.note for table in outcome.tables] + [chart.note for chart in outcome.charts]
        assert set(notes) == {outcome.scale}
    assert "rounds 12 (500)" in outcomes["table1"].scale
    assert "left out: FedCMOO 5, FSMGDA 5, FedCMOO 40, FSMGDA 40" in outcomes["drift"].scale
    assert "left out: 1:8, 8:1" in outcomes["preferences"].scale


def test_every_chart_says_what_to_see(outcomes: dict[str, Outcome]) -> None:
    charts = [chart for outcome in outcomes.values() for chart in outcome.charts]
    assert all(chart.see.endswith(".") and chart.panels for chart in charts)
    assert len({chart.name for chart in charts}) == len(charts)


def test_table1_has_ours_beside_the_papers(outcomes: dict[str, Outcome]) -> None:
    assert cells(outcomes["table1"], 0, "FedCMOO")[:3] == ["FedCMOO", "95.5 ± 0.0 / 78.8 ± 0.0", "95.5 / 78.8"]
    assert values(outcomes["table1"], "pref-hard-objective-mnist-fmnist") == pytest.approx([0.4, 0.4])
    assert values(outcomes["table1"], "level-multimnist") == pytest.approx([2.0, 2.0])


def test_delta_m_of_the_papers_accuracies_is_the_papers(outcomes: dict[str, Outcome]) -> None:
    row = cells(outcomes["delta-m"], 0, "FedCMOO")
    assert [cell.removesuffix(" ± 0.00") for cell in row[1::2]] == row[2::2] == ["7.04", "0.79", "5.93"]


def test_claims_on_the_papers_numbers_measure_what_the_paper_has(outcomes: dict[str, Outcome]) -> None:
    known = [v for name in ("gram", "table2") for v in outcomes[name].verdicts if v.claim.paper is not None]
    exact = [v for v in known if not v.claim.id.startswith(("l2-mean", "l2-fsmgda"))]  # FSMGDA drifts here
    assert len(exact) == 18
    for verdict in exact:
        assert verdict.values == pytest.approx([verdict.claim.paper] * 2)
        assert judge(verdict.claim, verdict.values, full=True).verdict == HOLDS


def test_an_estimator_without_room_has_an_empty_cell(outcomes: dict[str, Outcome]) -> None:
    # d numbers are less than two bits for each of 40 gradients' entries.
    assert cells(outcomes["gram"], 0, "one-way quantizer")[1::2] == [*["0.50 ± 0.00"] * 3, "–"]


def test_drift_grows_as_made(outcomes: dict[str, Outcome]) -> None:
    # FSMGDA loses 0.1 points of the first of two objectives for every local step, and the steps go from 2 to 20.
    assert values(outcomes["drift"], "drift-grows-multimnist") == pytest.approx([0.9, 0.9])


def test_qm9_at_equal_upload(outcomes: dict[str, Outcome]) -> None:
    assert values(outcomes["qm9"], "qm9-rounds") == pytest.approx([100 * (1 - 1 / 1.4)] * 2)
    assert values(outcomes["qm9"], "qm9-communication") == pytest.approx([0.1, 0.1])
    # After 12 rounds FedCMOO has uploaded 22.8 models: 0.8 / 11 of the way from FSMGDA's second round to its third.
    end = 0.1 * 21 / 11
    second, third = (
        1.4 * end * (1 - rest) + 2.3 * rest for rest in (math.exp(-5 * t / 12) - math.exp(-5) for t in (2, 3))
    )
    expected = 100 * (1 - end / (second + (third - second) * 0.8 / 11))
    assert values(outcomes["qm9"], "qm9-upload") == pytest.approx([expected] * 2)
    chart = outcomes["qm9"].charts[0]
    last = {line.label: line.x[chart.panels[1].axes[0]][-1] for line in chart.panels[1].lines}
    assert last == pytest.approx({"FSMGDA": 12 * 11, "FedCMOO": 12 * 1.9, "FedCMOO-Pref": 12 * 1.9})


def test_preferences_met_exactly_have_no_angle(outcomes: dict[str, Outcome]) -> None:
    rows = [row for row in outcomes["preferences"].tables[0].rows if "alone" not in row[1]]
    assert [row[-1] for row in rows] == ["0.0°"] * 10
    assert values(outcomes["preferences"], "preferences-followed-multimnist") == pytest.approx([0.2, 0.2])
    assert outcomes["preferences"].charts[0].panels[0].infeasible == pytest.approx([0.046, 0.069])
    # Rays from 1:4 to 4:1 in four steps.
    half = (math.atan(4) - math.atan(1 / 4)) / 4 / 2
    assert values(outcomes["preferences"], "preferences-met-multimnist") == pytest.approx([math.degrees(half)] * 2)
    # Losses are 0.3 / r: the middle is at 0.3, the outermost have 0.3 / 4 as their smaller one, and 0.3 as the other.
    middle, outermost = min(0.3 - 0.046, 0.3 - 0.069), (0.3 / 4 - 0.046 + 0.3 / 4 - 0.069) / 2
    assert values(outcomes["preferences"], "preferences-limit-multimnist") == pytest.approx([middle - outermost] * 2)


def test_a_minimum_weight_is_compared_over_all_rounds(outcomes: dict[str, Outcome]) -> None:
    # Without it, the first of two objectives ends 2 points lower, and less before: 1 point of the mean at the end.
    every = STUDY.configs("multimnist", "fedcmoo-pref")[0].evaluate_every
    rests = [math.exp(-5 * t / 12) - math.exp(-5) for t in range(1, 13) if t % every == 0 or t == 12]
    expected = 1 - sum(rests) / len(rests)
    assert 0 < expected < 1
    assert values(outcomes["minimum-weight"], "minimum-weight-multimnist") == pytest.approx([expected] * 2)
    assert cells(outcomes["minimum-weight"], 0, "none")[1] == "91.8 ± 0.0 / 91.1 ± 0.0"  # 93.8 in Table 1


def test_one_way_is_compared_with_two_way_whatever_the_sign(outcomes: dict[str, Outcome]) -> None:
    # As made, one-way ends 0.6 points lower on the first of two objectives.
    assert values(outcomes["one-way"], "one-way-multimnist") == pytest.approx([0.7, 0.7])


def test_local_progress_compares_rounds_in_which_neither_diverged(outcomes: dict[str, Outcome]) -> None:
    for way, lead in (("progress", 0.1), ("progress-same-rate", 0.2)):
        assert values(outcomes["local-progress"], f"{way}-loss-multimnist") == pytest.approx([lead] * 2)
    rows = outcomes["local-progress"].tables[0].rows[:3]
    assert [row[-1] for row in rows] == ["2 of 24 rounds", "0 of 24 rounds", "4 of 24 rounds"]


def test_smallest_delta_m_is_compared_with_both_others(outcomes: dict[str, Outcome]) -> None:
    for claim, paper in (
        ("delta-m-smallest-mnist-fmnist", 7.60 - 7.04),
        ("delta-m-pref-smallest-cifar10-mnist", 5.63 - 5.12),
        ("delta-m-pref-multimnist", 4.26 - 1.91),
    ):
        assert values(outcomes["delta-m"], claim) == pytest.approx([paper] * 2, abs=0.6)  # FSMGDA drifts here


def test_table1_claims_on_the_papers_numbers(outcomes: dict[str, Outcome]) -> None:
    for part, best, uniform in (("mnist-fmnist", 1.5, 2.8), ("multimnist", 0.6, 1.4), ("cifar10-mnist", 0.6, 12.5)):
        assert values(outcomes["table1"], f"best-{part}") == pytest.approx([best] * 2)
        assert values(outcomes["table1"], f"pref-uniform-{part}") == pytest.approx([uniform] * 2, abs=1.01)


def test_rate_recovers_the_slope(outcomes: dict[str, Outcome]) -> None:
    # As made: the average goes with client_lr^1.2, so with T^-0.6 unless the steps are frozen, and with M^0.1.
    assert cells(outcomes["rate"], 0, "slope over T")[1] == "-0.600 ± 0.000"
    assert cells(outcomes["rate"], 0, "slope over M")[1:] == ["0.100 ± 0.000", ""]
    assert values(outcomes["rate"], "rate-control") == pytest.approx([0.6, 0.6])
    assert values(outcomes["rate"], "rate-objectives") == pytest.approx([0.4, 0.4])


def test_outcomes_are_kept_whole_and_summed_up(outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    for name in ("table2", "rate"):
        outcomes[name].save(tmp_path)
    loaded = Outcome.load(Outcome.place(tmp_path, "rate"))
    assert [v.verdict for v in loaded.verdicts] == [v.verdict for v in outcomes["rate"].verdicts]
    assert loaded.charts[0].panels[0].lines[0].y == outcomes["rate"].charts[0].panels[0].lines[0].y
    for file in ("rate.md", "rate.csv", "rate.svg", "rate.png", "table2.md", "table2.csv"):
        assert (tmp_path / file).stat().st_size > 100
    assert "small scale" in (tmp_path / "rate.md").read_text()
    write_summary(tmp_path)
    write_interactive(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert count_verdicts([outcomes["table2"], outcomes["rate"]]) in page
    assert "FedAvg fails on the l2 objective of MultiMNIST" in page
    assert "rate.svg" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "claims.csv").read_text().startswith("id,verdict,mean")


def test_runs_are_shared_between_targets(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    plan = planned(choose(["table1", "curves", "delta-m", "drift"]), STUDY, runs)
    shared = [run for run in plan if (run.name, run.seed) == ("multimnist FedCMOO", 0)]
    assert [run.targets for run in shared] == [("table1", "curves", "drift", "delta-m")]
    assert all(run.done == 0 and (run.seconds > 0 or run.missing) for run in plan)


def test_runs_without_data_are_not_made_in_parallel(tmp_path: Path) -> None:
    study = Study(rounds=12, seeds=(0, 1), data=str(tmp_path))
    chosen = choose(["radial", "rate"])
    possible = with_data(needed_runs(chosen, study))
    names = list(possible)
    assert [name for name in names if not name.startswith("rate: ")] == []  # CelebA is missing
    assert "rate: valleys M 4, seed 1" in names
    made = [run for run in planned(chosen, study, Runs(tmp_path / "runs")) if not run.missing]
    assert len(Runs(tmp_path / "runs").missing(possible)) == len(made)  # each once


def test_finished_runs_alone_give_what_they_can(tmp_path: Path) -> None:
    runs = Runs(tmp_path, only_finished=True)
    targets = choose(["table1", "delta-m"])
    fabricate(targets, STUDY, runs)
    for run in tmp_path.iterdir():
        if run.name.startswith(("mnist-fmnist-fsmgda-seed1", "multimnist-fsmgda", "cifar10-mnist")):
            shutil.rmtree(run)
    table1, delta_m = (make(target, STUDY, runs, print) for target in targets)
    assert cells(table1, 0, "FSMGDA")[1::2] == ["92.0 / 75.4", "not measured"]
    assert cells(table1, 0, "FedCMOO")[1] == "95.5 ± 0.0 / 78.8 ± 0.0"
    assert table1.scale.endswith("; not measured yet: mnist-fmnist FSMGDA seed 1; multimnist FSMGDA seeds 0, 1")
    assert list(table1.failures) == ["cifar10-mnist"]
    assert values(table1, "mean-accuracy-multimnist") == []
    assert len(values(table1, "mean-accuracy-mnist-fmnist")) == 1
    assert len(values(table1, "level-multimnist")) == 2
    assert set(delta_m.failures) == {"multimnist", "cifar10-mnist"}  # which has nothing to compare with
    assert len(values(delta_m, "delta-m-pref-mnist-fmnist")) == 1


def test_decided_claims_are_counted_without_celeba(outcomes: dict[str, Outcome]) -> None:
    free = [c for c in all_claims() if c.where != "ours" and "elebA" not in c.text and c.target != "radial"]
    free = [c for c in free if c.part != "celeba"]
    decided = [v for o in outcomes.values() for v in o.verdicts if v.claim in free and v.verdict in (HOLDS, FAILS)]
    text = f"Of the {len(free)} claims of the paper that do not need CelebA, {len(decided)} are decided"
    assert text in count_verdicts(list(outcomes.values()))


def test_time_is_estimated_from_finished_runs(tmp_path: Path) -> None:
    runs, target = Runs(tmp_path), choose(["qm9"])  # its data come with a package
    fabricate(target, Study(rounds=10), runs)  # a second for ten rounds
    finished = planned(target, Study(rounds=10), runs)
    assert {run.seconds for run in finished} == {0.0}
    others = planned(target, Study(rounds=50, seeds=(7,)), runs)
    assert [run.seconds for run in others] == pytest.approx([5.0, 5.0, 5.0])


def test_time_is_guessed_from_the_gradients_that_clients_compute(tmp_path: Path) -> None:
    study = Study(full=True, seeds=(0,))
    runs = planned(choose(["qm9"]), study, Runs(tmp_path))
    by_method = {run.name.removeprefix("qm9 "): run.seconds for run in runs}
    steps = study.configs("qm9", "fedcmoo")[0].method.local_steps
    assert by_method["FSMGDA"] / by_method["FedCMOO"] == pytest.approx(
        11 * steps / (10 + steps)
    )  # the first step reuses a gradient
