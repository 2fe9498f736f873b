"""What torch raises says which client, phase and objective it was; NaN in the data is not taken for divergence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from torch.utils.data import TensorDataset

from fedcmoo import FSMGDA, FedAvg, FedCMOO, Metric, Objective, Problem, fit
from fedcmoo.data.base import as_data
from fedcmoo.engines import Local, Pool
from fedcmoo.failures import DivergedError
from fedcmoo.rounds import Sizes
from fedcmoo.types import Matrix, Vector
from tests.core.problems import classification, quadratics


class Regressions(nn.Module):
    """Two regressions on three features, with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.net(x)
        return {"price": y[:, 0], "rent": y[:, 1]}


def houses(**changes: Any) -> Problem:
    """A problem in which clients or objectives can be replaced by broken ones."""
    objectives = [Objective("price", mse_loss), Objective("rent", mse_loss)]
    problem = Problem(Regressions(), objectives, [client() for _ in range(3)], test=client())
    return replace(problem, **changes)


def client(n: int = 8, width: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    return torch.randn(n, width), {"price": torch.randn(n), "rent": torch.randn(n)}


def error_of(run: Callable[[], object]) -> tuple[BaseException, str]:
    """The error that a run ends with, and all that its traceback says of where."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is asked
        run()
    return caught.value, "\n".join(getattr(caught.value, "__notes__", []))


@pytest.mark.parametrize("engine", [Local(), Pool(workers=1)], ids=["local", "pool"])
def test_a_wrong_width_names_client_phase_and_round(engine: Local | Pool) -> None:
    problem = houses(clients=[client(), client(), client(width=5)])
    error, where = error_of(lambda: fit(problem, FedCMOO(local_steps=1), 1, engine=engine))
    assert isinstance(error, RuntimeError)
    assert "cannot be multiplied" in str(error)
    assert "in phase 'jacobian' of round 1 at client 2" in where


def test_one_sample_is_too_few_for_batch_norm() -> None:
    problem = houses(clients=[client(), client(n=1)])
    error, where = error_of(lambda: fit(problem, FedAvg(local_steps=1), 1, engine=Local()))
    assert "more than 1 value per channel" in str(error)
    assert "in phase 'train' of round 1 at client 1" in where


def test_a_loss_that_fails_names_its_objective() -> None:
    def only_floats(output: Tensor, target: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(output, target[:, None])

    problem = houses(objectives=[Objective("price", mse_loss), Objective("rent", only_floats)])
    error, where = error_of(lambda: fit(problem, FedAvg(), 1))
    assert "must be the same as" in str(error)
    assert "in the loss of objective 'rent'" in where
    assert "before training" in where


def test_integer_targets_name_their_objective() -> None:
    x, targets = client()
    whole = (x, {**targets, "rent": torch.ones(8, dtype=torch.int64)})
    objectives = [Objective("price", mse_loss), Objective("rent", binary_cross_entropy_with_logits)]
    error, where = error_of(lambda: fit(houses(clients=[whole], objectives=objectives), FedAvg(), 1))
    assert "Long" in str(error)
    assert "in the loss of objective 'rent'" in where


def test_a_gradient_that_fails_names_its_objective() -> None:
    def changes_what_the_gradient_needs(output: Tensor, target: Tensor) -> Tensor:
        grown = output.exp()
        loss = grown.mean()
        grown.add_(1)
        return loss

    objectives = [Objective("price", mse_loss), Objective("rent", changes_what_the_gradient_needs)]
    error, where = error_of(lambda: fit(houses(objectives=objectives), FedAvg(), 1))
    assert "inplace operation" in str(error)
    assert "in the gradient of objective 'rent'" in where


def test_a_detached_loss_names_its_objective() -> None:
    detached = Objective("rent", lambda output, target: mse_loss(output.detach(), target))
    with pytest.raises(ValueError, match="loss of objective 'rent' must depend on the model's parameters"):
        fit(houses(objectives=[Objective("price", mse_loss), detached]), FedAvg(), 1)


def test_a_metric_that_fails_names_itself() -> None:
    metric = Metric("r2", lambda output, target: output @ target[:1])
    problem = houses(objectives=[Objective("price", mse_loss, [metric]), Objective("rent", mse_loss)])
    _, where = error_of(lambda: fit(problem, FedAvg(), 1))
    assert "in metric 'r2' of objective 'price'" in where


def test_numpy_arrays_are_refused_with_the_remedy() -> None:
    x, targets = client()
    with pytest.raises(TypeError, match=r"inputs must be tensors.* but got ndarray; .*torch\.as_tensor"):
        fit(houses(clients=[(x.numpy(), targets)]), FedAvg(), 1)


def test_samples_of_four() -> None:
    four = TensorDataset(*(torch.randn(5, 3) for _ in range(4)))
    with pytest.raises(ValueError, match=r"samples must be pairs \(inputs, targets\), but have 4 entries"):
        fit(houses(clients=[four]), FedAvg(), 1)
    with pytest.raises(TypeError, match="but got a list of 2 tensors"):
        as_data([torch.zeros(3, 2), torch.zeros(3)])
    assert len(as_data([(torch.zeros(2), torch.zeros(1))] * 3)) == 3  # a list of samples


@pytest.mark.parametrize("method", [FedAvg(local_steps=2), FedCMOO(local_steps=2), FSMGDA(local_steps=2)])
def test_nan_in_the_data_is_not_divergence(method: FedAvg) -> None:
    broken = client()
    broken[0][5, 1] = torch.nan
    with pytest.raises(ValueError, match="inputs must be finite, but sample 5 of client 1 has NaN or infinite ones"):
        fit(houses(clients=[client(), broken]), method, 1, engine=Local())


def test_nan_in_test_data_is_not_divergence() -> None:
    broken = client()
    broken[0][2] = torch.inf
    with pytest.raises(ValueError, match="inputs must be finite, but sample 2 of the test data"):
        fit(houses(test=broken), FedAvg(local_steps=1), 1, engine=Local())


def test_nan_in_targets_that_all_objectives_see() -> None:
    problem = quadratics()
    problem.clients[3][1][1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="targets must be finite, but sample 1 of client 3"):
        fit(problem, FedAvg(), 1, engine=Local())


class RootOfTheDistance:
    """A loss that is finite where its gradient is not: √‖x‖² at x = 0."""

    def __call__(self, x: Tensor, targets: Tensor) -> Tensor:
        return x.square().sum(dim=1).sqrt().mean()


def test_the_objective_whose_gradient_is_nan_is_named() -> None:
    problem = quadratics(M=2)
    problem.objectives = [problem.objectives[0], Objective("root", RootOfTheDistance())]
    with pytest.raises(DivergedError, match="the gradient of objective 'root' became NaN or infinite in round 1"):
        fit(problem, FedCMOO(), 1, engine=Local())


def test_a_nan_metric_does_not_end_a_run(caplog: pytest.LogCaptureFixture) -> None:
    correlation = Metric("correlation", lambda output, target: (output - output).sum() / 0)
    problem = houses(objectives=[Objective("price", mse_loss, [correlation]), Objective("rent", mse_loss)])
    with caplog.at_level(logging.WARNING):
        result = fit(problem, FedAvg(local_steps=1), 2, evaluate_every=1, engine=Local())
    assert len(result.history) == 2
    assert "correlation" not in result.scores["price"]
    assert "correlation of 'price' is nan on test data" in caplog.text


def test_a_model_that_is_not_on_the_cpu() -> None:
    with pytest.raises(ValueError, match=r"model must be on the CPU, but is on meta: give model\.cpu\(\)"):
        houses(model=nn.Linear(3, 1, device="meta"))


@pytest.mark.parametrize("device", ["mps", "meta", "cuda:99"])
def test_devices_that_cannot_train(device: str) -> None:
    with pytest.raises(ValueError, match=rf"device must be one of this machine's \(cpu.*\), but got '{device}'"):
        Local(device=device)


def three(w: Vector, G: Matrix) -> Vector:
    return np.ones(3)


def nan(w: Vector, G: Matrix) -> Vector:
    return w * np.nan


def text(w: Vector, G: Matrix) -> str:
    return "equal"


@pytest.mark.parametrize("rule", [three, nan, text])
@pytest.mark.parametrize("method", [FedCMOO, FSMGDA])
def test_a_rule_must_return_a_weight_for_each_objective(rule: Any, method: type[FedCMOO]) -> None:
    with pytest.raises(
        ValueError, match=f"weights must be 2 finite numbers, but the rule .*{rule.__name__}.* returned"
    ):
        fit(classification(), method(weights=rule, local_steps=1), 1, engine=Local())


class Unmovable(nn.Linear):
    """A model that an engine cannot start with: it cannot be put on a device."""

    def to(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("this model stays where it is")


def test_threads_are_as_before_if_an_engine_cannot_start() -> None:
    problem = replace(classification(), model=Unmovable(6, 3))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.raises(RuntimeError, match="stays where it is"):
            Local().start(problem, {}, 0, Sizes(d=21, d_shared=21, M=2))
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


class OnlyFirst(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        return {"first": super().forward(x)}


def test_a_missing_output_is_told_from_a_missing_target() -> None:
    x = torch.zeros(4, 2)
    targets = {"first": x, "second": x}
    objectives = [Objective("first", mse_loss), Objective("second", mse_loss)]
    with pytest.raises(KeyError, match="no entry for objective 'second' among") as error:
        Problem(OnlyFirst(2, 2), objectives, [(x, targets)]).check()
    assert "in the model's outputs" in error.value.__notes__
