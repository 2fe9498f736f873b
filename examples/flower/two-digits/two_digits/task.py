"""What all sides agree on: the problem and the method."""

from __future__ import annotations

from flwr.app import Context

from fedcmoo import FedCMOO, Problem
from fedcmoo.experiments.two_digits import TwoDigits


def problem(context: Context) -> Problem:
    """Pairs of scikit-learn's digits, dealt out to clients; every node can make them itself, so none are sent."""
    config = context.run_config
    return TwoDigits(clients=int(config["clients"]), train_pairs=2400, test_pairs=500).build(int(config["seed"]))


def method(context: Context) -> FedCMOO:
    """FedCMOO with its default estimate of the Gram matrix."""
    return FedCMOO(client_lr=0.2, server_lr=1.2, batch_size=32, local_steps=int(context.run_config["local-steps"]))
