"""Finished runs with chosen numbers, as if they had been trained: so that what is made of them has a known answer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch

from fedcmoo.bench.gram import BUDGETS, entries, possible
from fedcmoo.bench.gram_result import PAPER, GramBench, GramRow
from fedcmoo.evaluation import Scores
from fedcmoo.history import Record
from fedcmoo.methods import METHODS
from fedcmoo.reproduce.measuring import NOTE, WAYS
from fedcmoo.reproduce.paper import SINGLE, TABLE1, TABLE2
from fedcmoo.reproduce.study import Study, StudyConfig
from fedcmoo.reproduce.targets import PaperTarget
from fedcmoo.reproduce.targets.gram import GramStudy
from fedcmoo.rounds import Sizes
from fedcmoo.runs import Runs
from fedcmoo.settings import write_toml

NAMES = {"celeba": 40, "celeba5": 5, "qm9": 11}
MODEL = 1000
"""Bytes of the model."""
DIVERGED = ((1, 2), (2, 2), (3, 0))
"""Rounds of the measurement of local progress, and which of the ways diverged there."""


def fabricate(targets: Iterable[PaperTarget], study: Study, runs: Runs) -> None:
    """Write every run that the targets need."""
    for target in targets:
        for part in target.parts:
            labels = target.plan(study, part)
            for config in (config for seeds in labels.values() for config in seeds):
                folder = runs.place(config)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "config.toml").write_text(write_toml(config.to_table()))
                if isinstance(config, GramStudy):
                    (folder / "gram.json").write_text(json.dumps(asdict(bench(config.to_table()["problem"]["name"]))))
                (folder / "history.jsonl").write_text("".join(r.to_json() + "\n" for r in history(config)))
                (folder / "result.json").write_text(json.dumps({"seconds": 1.0, "rounds": config.rounds}))


def history(config: StudyConfig) -> list[Record]:
    """Rounds whose last scores are the paper's, where it has any."""
    table = config.to_table()
    method, problem = table["method"]["name"], table["problem"]["name"]
    M = NAMES.get(problem, 2)
    end = final(table)
    per_client = MODEL * (M if method == "fsmgda" else 1 if method == "fedavg" else 1.9)
    records = []
    for t in range(1, config.rounds + 1):
        record = Record(t, list(range(4)), {name: 1 / len(end) for name in end}, up={"train": int(4 * per_client)})
        record.seconds = {"train": 0.1}
        if t % config.evaluate_every == 0 or t == config.rounds:
            record.test = faded(end, t / config.rounds)
        if method == "local-progress":
            for n, way in enumerate(WAYS):
                if (t, n) in DIVERGED:
                    continue
                record.notes |= {f"{way}: loss reduction": 0.3 - 0.1 * n, f"{way}: accuracy gain": 0.05 - 0.01 * n}
        if method == "fedcmoo-t-measured":
            record.notes[NOTE] = config.method.client_lr**1.2 * table["problem"]["objectives"] ** 0.1
        records.append(record)
    return records


def final(table: dict[str, object]) -> Scores:
    """The scores at the end of a run."""
    problem, method = table["problem"], table["method"]
    assert isinstance(problem, dict)
    assert isinstance(method, dict)
    name, label = problem["name"], METHODS[method["name"]].label() if method["name"] in METHODS else "FedCMOO"
    if name == "valleys":
        return {f"valley {k + 1}": {"loss": 1.0} for k in range(problem["objectives"])}
    if name in NAMES:
        worse = {"FSMGDA": 1.4, "FedCMOO": 1.0}.get(label, 1.1)
        return {f"task {k}": score(0.9 / worse, 0.1 * worse * (1 + k % 3)) for k in range(NAMES[name])}
    pair = TABLE1[name].get(label, (90.0, 80.0))
    if problem.get("first_loss") == "l2":
        pair = TABLE2[name][label]
    if isinstance(method.get("weights"), list):
        pair = SINGLE[name]
    first, second = (value / 100 for value in pair)
    losses = [1 - first, 1 - second]
    if isinstance(method.get("preference"), list):
        losses = [0.3 / r for r in method["preference"]]
    if method["name"] == "fsmgda":
        first -= 0.001 * method["local_steps"]
    if method["name"] == "fedcmoo" and method["gram"]["name"] == "one-way":
        first -= 0.006
    if method["name"] == "fedcmoo-pref" and method["weights"]["even_share"] == 0:  # without a minimum weight
        first -= 0.02
    return {"first": score(first, losses[0]), "second": score(second, losses[1])}


def score(accuracy: float, loss: float) -> dict[str, float]:
    return {"loss": loss, "accuracy": accuracy}


def faded(end: Scores, share: float) -> Scores:
    """The scores at some share of the way from a guess to the end."""
    rest = math.exp(-5 * share) - math.exp(-5)
    return {
        name: {
            metric: value * (1 - rest) + (2.3 if metric == "loss" else 0.1) * rest for metric, value in scores.items()
        }
        for name, scores in end.items()
    }


def bench(problem: str) -> GramBench:
    """A comparison with the paper's errors at an upload of d, and larger ones below."""
    rows, M = [], NAMES.get(problem, 2)
    sizes = Sizes(d=10**6, d_shared=10**6, M=M, buffers=0, counters=0, dtype=torch.float32)
    for entry in (entry for entry in entries(BUDGETS) if possible(entry, sizes)):
        error = PAPER.get(entry.name, {}).get(problem, 0.5) / 100 / math.sqrt(entry.budget or 1)
        rows.append(
            GramRow(entry.name, entry.budget, [error], [error], max(entry.budget, 1e-3) * 4000, 0.0, 0.01, 0.01, None)
        )
    return GramBench(problem, 1000, M, 20, rows)


def runs_in(folder: Path) -> Runs:
    return Runs(folder / "runs")
