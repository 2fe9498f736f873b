"""What a network can reach with one objective and all data in one place.

python benchmarks/ceiling.py PROBLEM OBJECTIVE [EPOCHS]

Adam from 0.002 down to 0 along a cosine, batches of 128, the problem's augmentation and dropout: no clients, no other
objective. Federated training of several objectives cannot be expected to exceed that.
"""

import sys

import torch

from fedcmoo.cli.common import resolve
from fedcmoo.data.folder import data_folder
from fedcmoo.experiments.images import ImageProblem
from fedcmoo.randomness import generator


def main(name: str, objective: str, epochs: int) -> None:
    problem = resolve(name, "fedavg").problem
    assert isinstance(problem, ImageProblem)
    train, _, test = problem.splits(data_folder(None))
    built, transform = problem.objectives(), problem.transform()
    k = [one.name for one in built].index(objective)
    torch.manual_seed(0)
    model = problem.model().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    random = generator(0, "ceiling")
    for epoch in range(1, epochs + 1):
        model.train()
        for index in torch.randperm(len(train), generator=random).split(128):
            inputs, targets = train.batch(index)
            if transform is not None:
                inputs = transform(inputs, random)
            loss = built[k].loss(model(inputs.contiguous(memory_format=torch.channels_last))[k], targets[k])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            parts = [test.batch(index) for index in torch.arange(len(test)).split(1000)]
            right = sum(int((model(x)[k].argmax(dim=1) == y[k]).sum()) for x, y in parts)
        print(f"{name} {objective}, epoch {epoch}: test accuracy {100 * right / len(test):.1f} %", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 25)
