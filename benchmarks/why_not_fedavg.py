"""The figure of docs/why-not-fedavg.md, from a bench of rules and a sweep of preferences.

fedcmoo bench weights --problems mixed-digits,loans --rules at-least-equal,find-weights --out BENCH
fedcmoo pareto loans --preferences 1:10,1:30,1:100,1:300,1:1000 --fedavg --out SWEEP
python benchmarks/why_not_fedavg.py BENCH SWEEP docs/images/why-not-fedavg.png
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from fedcmoo.pareto import Front

RULES = {"fedavg": ("FedAvg", "#888888"), "find-weights": ("FedCMOO, the paper's rule", "#d62728")}
RULES |= {"at-least-equal": ("FedCMOO, the default rule", "#1f77b4")}


def mixed_losses(ax: Axes, bench: dict) -> None:
    """Each loss of mixed-digits, divided by that of training the objective alone: mean and extremes over seeds."""
    names, alone = bench["objectives"]["mixed-digits"], np.array(bench["alone"]["mixed-digits"])
    for n, (rule, (label, colour)) in enumerate(RULES.items()):
        ratio = np.array(bench["losses"]["mixed-digits"][rule]) / alone
        mean = ratio.mean(axis=0)
        spread = np.abs(np.stack([ratio.min(axis=0), ratio.max(axis=0)]) - mean)
        ax.bar(np.arange(len(names)) + 0.27 * (n - 1), mean, 0.25, yerr=spread, color=colour, label=label, capsize=2)
    ax.axhline(1, color="black", linewidth=0.8)
    ax.set(yscale="log", ylabel="test loss / loss when trained alone", title="One model for three kinds of loss")
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.set_xticks(range(len(names)), names)
    ax.legend(frameon=False)


def fairness(ax: Axes, bench: dict, front: Front) -> None:
    """The front of loans, with the models of FedAvg and of the default rule."""
    front_losses = front.losses[front.non_dominated]
    front_losses = front_losses[np.argsort(front_losses[:, 0])]
    ax.plot(*front_losses.T, "o-", color="#2ca02c", label="a sweep of preferences (FedCMOO-Pref)")
    for rule in ("fedavg", "at-least-equal"):
        label, colour = RULES[rule]
        ax.plot(*bench["losses"]["loans"][rule][0], "D", color=colour, label=label, markersize=8)
    ax.set(xlabel="approval loss", ylabel="parity loss", yscale="log", title="Accuracy against fairness")
    ax.legend(frameon=False)


def main(bench: Path, sweep: Path, picture: Path) -> None:
    found = json.loads((bench / "weights.json").read_text())
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    mixed_losses(left, found)
    fairness(right, found, Front.load(sweep))
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
