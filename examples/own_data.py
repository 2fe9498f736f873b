"""Your own data: federate a multi-output scikit-learn problem over ten clients."""

import torch
from sklearn.datasets import load_linnerud
from torch import nn
from torch.nn.functional import mse_loss

from fedcmoo import FedCMOO, Objective, Problem, fit


def main() -> None:
    data = load_linnerud()  # three exercises -> weight, waist and pulse of twenty men
    x = torch.tensor((data.data - data.data.mean(0)) / data.data.std(0), dtype=torch.float32)
    y = torch.tensor((data.target - data.target.mean(0)) / data.target.std(0), dtype=torch.float32)
    targets = {name: y[:, k] for k, name in enumerate(data.target_names)}

    class Heads(nn.Module):
        shared = ("encoder",)  # the objectives share these parameters

        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(3, 16), nn.Tanh())
            self.heads = nn.ModuleDict({name: nn.Linear(16, 1) for name in targets})

        def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
            z = self.encoder(inputs)
            return {name: head(z).squeeze(1) for name, head in self.heads.items()}

    clients = [(x[i : i + 2], {k: v[i : i + 2] for k, v in targets.items()}) for i in range(0, 20, 2)]
    problem = Problem(
        Heads(), [Objective(name, mse_loss) for name in targets], clients, test=(x, targets), name="linnerud"
    )
    print(fit(problem, FedCMOO(client_lr=0.1), rounds=50, clients_per_round=5))


if __name__ == "__main__":
    main()
