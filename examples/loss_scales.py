"""What the scale of a loss does to weighting rules: the two-digit problem with the left digit's loss taken times four.

Min-norm weights favour the objective with the smaller gradient, so the scaled digit is hardly trained. Rules that do
not depend on the scale train both. Needs the extra `torchjd`, some minutes, and writes a figure.
"""

import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import cross_entropy

from fedcmoo import FedCMOO, Problem, fit
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.weights import WEIGHTS

RULES = {
    "find-weights": "FindWeights\n(the paper's)",
    "normalized": "min-norm, of\nunit gradients",
    "imtl-g": "IMTL-G",
    "upgrad": "UPGrad",
    "mean": "equal weights\n(FedAvg's loss)",
}


def four_times(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 4 * cross_entropy(output, target)


def scaled(problem: Problem) -> Problem:
    left, right = problem.objectives
    return replace(problem, objectives=[replace(left, loss=four_times), right])


def main(rounds: int, figure: str, seed: int) -> None:
    problem = scaled(TwoDigits().build(seed))
    accuracies, weights = {}, {}
    for rule in RULES:
        method = FedCMOO(client_lr=0.1, batch_size=32, weights=WEIGHTS[rule]())
        result = fit(problem, method, rounds, clients_per_round=10, seed=seed, evaluate_every=rounds)
        accuracies[rule] = [result.scores[digit]["accuracy"] for digit in ("left", "right")]
        weights[rule] = sum(record.weights["left"] for record in result.history) / rounds
        print(f"{rule:13} left {accuracies[rule][0]:.3f}  right {accuracies[rule][1]:.3f}  weight {weights[rule]:.3f}")
    plot(accuracies, weights, rounds, figure)


def plot(accuracies: dict[str, list[float]], weights: dict[str, float], rounds: int, figure: str) -> None:
    fig, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    for k, (label, color) in enumerate((("left, loss × 4", "#d55e00"), ("right", "#0072b2"))):
        places = [n + (k - 0.5) * 0.38 for n in range(len(RULES))]
        bars = axes.bar(places, [100 * accuracies[rule][k] for rule in RULES], 0.36, label=label, color=color)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(range(len(RULES)), [f"{text}\nw = {weights[rule]:.2f}" for rule, text in RULES.items()], fontsize=8)
    axes.set(ylabel="test accuracy (%)", ylim=(0, 110))
    axes.set_title(f"Two digits, {rounds} rounds, the left digit's loss times four (w: its mean weight)", fontsize=10)
    fig.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    fig.savefig(figure, dpi=150)


if __name__ == "__main__":
    rounds, figure = (*sys.argv[1:3], *("100", "loss-scales.png")[len(sys.argv) - 1 :])
    main(int(rounds), figure, seed=0)
