"""Samples without a label, marked by NaN, -1 or a mask: as if they were not there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from fedcmoo import FedAvg, FedCMOO, Objective, Problem, accuracy, fit
from fedcmoo.data.base import Masked
from fedcmoo.engines import Local
from fedcmoo.evaluation import evaluate, scores
from fedcmoo.parameters import FlatModel
from tests.core.problems import Point, TwoHeads
from tests.core.test_ownership import ONE_STEP, SMALL, D, squared_distance, step


def test_a_missing_label_is_as_if_the_sample_were_not_there() -> None:
    """Also a client with one labelled sample, batches without any label, and one that has labels only further on."""
    g = torch.Generator().manual_seed(2)
    inputs, classes, numbers = torch.randn(20, 6, generator=g), torch.randint(0, 3, (20,)), torch.randn(20, 3)
    some = torch.rand(20, generator=g) < 0.4
    objectives = [Objective("class", cross_entropy, [accuracy]), Objective("number", mse_loss)]
    holes = (
        inputs,
        {"class": torch.where(some, classes, -1), "number": torch.where(some[:, None], numbers, torch.nan)},
    )
    dense = (inputs[some], {"class": classes[some], "number": numbers[some]})
    problem = Problem(TwoHeads(), objectives, [holes, dense], test=holes, validation=dense)
    model = FlatModel(problem.model)
    a, b = (
        scores(problem, *evaluate(problem, model, data, 0, len(data))) for data in (problem.test, problem.validation)
    )
    assert a["class"] == pytest.approx(b["class"])
    assert a["number"] == pytest.approx(b["number"])

    one = torch.full((20,), -1)
    one[13] = 2
    problem = Problem(TwoHeads(), objectives, [(inputs, {"class": one, "number": numbers}), holes], test=dense)
    assert problem.share(0).owned == (True, True)
    result = fit(problem, FedCMOO(local_steps=6, batch_size=2), 3, engine=Local())
    assert all(torch.isfinite(p).all() for p in result.model.parameters())
    nothing = (inputs, {"class": torch.full((20,), -1), "number": numbers})
    assert Problem(TwoHeads(), objectives, [nothing]).share(0).owned == (False, True)


def test_a_mask_says_which_samples_have_a_label() -> None:
    """As NaN and -1 do; also for one target of all objectives, and for samples of a Dataset."""
    g = torch.Generator().manual_seed(2)
    inputs, classes, numbers = torch.randn(20, 6, generator=g), torch.randint(0, 3, (20,)), torch.randn(20, 3)
    some = torch.rand(20, generator=g) < 0.4
    objectives = [Objective("class", cross_entropy, [accuracy]), Objective("number", mse_loss)]
    masked = (inputs, {"class": Masked(classes, some), "number": Masked(numbers, ~some)})
    marked = (
        inputs,
        {"class": torch.where(some, classes, -1), "number": torch.where(some[:, None], torch.nan, numbers)},
    )
    runs = [
        fit(Problem(TwoHeads(), objectives, [data] * 2, test=data), FedCMOO(**SMALL), 2, engine=Local())
        for data in (masked, marked)
    ]
    assert runs[0].history[1].without_time() == runs[1].history[1].without_time()

    one = Objective("distance", squared_distance)
    points = torch.randn(5, D, generator=g, dtype=torch.float64)
    samples: Any = [
        (torch.zeros(1), Masked(point, torch.tensor(keep))) for point, keep in zip(points, [1, 0, 1, 0, 0], strict=True)
    ]
    samples = [(x, Masked(target.values, target.labelled.bool())) for x, target in samples]
    moved = step(Problem(Point(D), [one], [samples]), FedAvg(**ONE_STEP))
    assert torch.allclose(moved, -0.1 * points[[0, 2]].mean(dim=0))

    nobody = (inputs, {"class": Masked(classes, torch.zeros(20, dtype=torch.bool)), "number": numbers})
    assert Problem(TwoHeads(), objectives, [nobody]).share(0).owned == (False, True)
    wrong = (inputs, {"class": Masked(classes, some.long()), "number": numbers})
    with pytest.raises(ValueError, match=r"a mask must be bool \[B\], but is torch.int64"):
        fit(Problem(TwoHeads(), objectives, [wrong]), FedAvg(**SMALL), 1, engine=Local())
