"""The numbers in the paper's tables."""

PROBLEMS = {
    "mnist-fmnist": "MNIST+FMNIST",
    "multimnist": "MultiMNIST",
    "cifar10-mnist": "CIFAR10+MNIST",
    "celeba": "CelebA",
    "celeba5": "CelebA-5",
    "qm9": "QM9",
}
"""The paper's names of the ready-made problems."""

CELEBA = ("celeba", "celeba5")
"""The problems whose data cannot be downloaded freely; claims about them are counted separately."""

TABLE1 = {
    "mnist-fmnist": {"FSMGDA": (93.0, 75.4), "FedCMOO": (95.5, 78.8), "FedCMOO-Pref": (94.0, 79.2)},
    "multimnist": {"FSMGDA": (92.3, 88.2), "FedCMOO": (94.4, 92.6), "FedCMOO-Pref": (93.8, 91.1)},
    "cifar10-mnist": {"FSMGDA": (58.2, 96.2), "FedCMOO": (57.4, 96.8), "FedCMOO-Pref": (63.6, 89.1)},
}
"""Final test accuracy in percent, first and second objective."""

BOLD = {"mnist-fmnist": (0,), "multimnist": (0, 1), "cifar10-mnist": (1,)}
"""The objectives on which FedCMOO is the best in Table 1."""

HARD = {"mnist-fmnist": 1, "cifar10-mnist": 0}
"""The objective that is clearly harder, by problem."""

SINGLE = {"mnist-fmnist": (97.0, 90.1), "multimnist": (95.4, 93.1), "cifar10-mnist": (64.9, 97.1)}
"""Appendix E.3: test accuracy in percent of each objective trained alone."""

DELTA_M = {
    "mnist-fmnist": {"FSMGDA": 10.22, "FedCMOO": 7.04, "FedCMOO-Pref": 7.60},
    "multimnist": {"FSMGDA": 4.26, "FedCMOO": 0.79, "FedCMOO-Pref": 1.91},
    "cifar10-mnist": {"FSMGDA": 5.63, "FedCMOO": 5.93, "FedCMOO-Pref": 5.12},
}
"""Appendix E.3: Δ_M in percent."""

TABLE2 = {
    "multimnist": {"FedAvg": (10.5, 93.4), "FSMGDA": (94.6, 17.7), "FedCMOO": (95.0, 70.3)},
    "cifar10-mnist": {"FedAvg": (20.7, 97.6), "FSMGDA": (64.2, 61.0), "FedCMOO": (66.3, 80.0)},
}
"""Final test accuracy in percent with the l2 loss on the first objective."""
