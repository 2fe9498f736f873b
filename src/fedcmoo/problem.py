"""The problem to solve: a model, its objectives, each client's data, and which parameters the objectives share."""

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import default_collate

from fedcmoo.data.base import Data, as_data
from fedcmoo.data.remote import NotHereError
from fedcmoo.failures import during
from fedcmoo.objective import BatchLosses, Metric, Objective, accuracy
from fedcmoo.ownership import Share, check_ownership, unequal
from fedcmoo.parameters import FlatModel, Precision, Prefixes, is_under, private_prefixes, shared_prefixes
from fedcmoo.randomness import generator, seeded

__all__ = ["Metric", "Objective", "Problem", "Transform", "accuracy"]

LOOK = 1000
"""The number of samples that are searched for labels at a time."""

SAMPLES = 2
"""The batch size with which `Problem.check` tests the model."""

Transform = Callable[[Any, torch.Generator], Any]
"""An augmentation of one training batch: (inputs, generator) -> inputs. All randomness must come from the generator."""


@dataclass
class Problem(BatchLosses):
    """A federated multi-objective problem: min over x of (F_1(x), …, F_M(x)).

    F_k(x) = 1/P_k Σ_{i owns k} p_i f_{i,k}(x), with clients' weights p_i (1 by default) and P_k = Σ_{i owns k} p_i. If
    every client owns every objective and has the same weight, F_k is the mean over clients. Single samples may lack
    labels, marked by NaN in a float target or -1 in a class target if targets are a dict or a tuple or there is only
    one objective, or by the mask of a `Masked` target. A loss or metric is the mean over the samples that have a label,
    and a batch without labels contributes zero.

    Args:
        model: any `nn.Module`; its trainable parameters are the vector x in R^d.
        objectives: the M objectives.
        clients: one entry per client, each a pair (inputs, targets) of tensors, a map-style Dataset, or `Data`. Any
            sequence works; an entry is looked up when its client is asked, so data may be loaded lazily.
        test: data for the test metrics; None for none.
        validation: data for validation metrics; None for none.
        client_test: data for the test metrics of each client, one entry per client as in `clients`, or None for a
            client without test data; None for no such metrics.
        shared: name prefixes of the parameters that all objectives share: the Gram matrix covers these. "all" for every
            parameter that is not private. By default the model's attribute `shared`, if it has one, else "all".
        private: name prefixes of the parameters and buffers that never leave a client, as in FedPer: each client trains
            and keeps its own copy, initialized from `model`. The model is then evaluated per client, on `client_test`.
        owns: for each client the names of the objectives that it owns. By default those with targets (the names in a
            dict, or the entries of a tuple that are not None) and at least one labelled sample.
        weights: p_i: "equal" for 1, "samples" for the number of the client's samples, or a positive number per client.
        transform: augmentation of training batches.
        collate: function that turns a list of samples into a batch, for map-style Datasets.
        name: the problem's name in reports.
    """

    model: nn.Module
    objectives: Sequence[Objective]
    clients: Sequence[Any]
    test: Any = None
    validation: Any = None
    client_test: Sequence[Any] | None = None
    shared: Sequence[str] | str | None = None
    private: Sequence[str] | str = ()
    owns: Sequence[Iterable[str]] | None = None
    weights: Literal["equal", "samples"] | Sequence[float] = "equal"
    transform: Transform | None = None
    collate: Callable[[list[Any]], Any] = default_collate
    name: str = "problem"
    shared_prefixes: Prefixes | None = field(init=False, repr=False)
    private_prefixes: Prefixes = field(init=False, repr=False)
    _shares: dict[int, Share] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.objectives:
            raise ValueError("a problem needs at least one objective, but got none")
        repeated = [name for name, n in Counter(o.name for o in self.objectives).items() if n > 1]
        if repeated:
            raise ValueError(f"objective names must be distinct, but {repeated[0]!r} occurs more than once")
        if len(self.clients) == 0:
            raise ValueError("a problem needs at least one client, but got none")
        names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        if not names:
            raise ValueError("the model has no trainable parameter")
        places = {p.device for p in self.model.parameters()} - {torch.device("cpu")}
        if places:
            raise ValueError(
                f"the model must be on the CPU, but is on {sorted(map(str, places))[0]}: give model.cpu(); an engine "
                "such as Local(device='cuda') computes elsewhere"
            )
        shared = getattr(self.model, "shared", None) if self.shared is None else self.shared
        self.shared_prefixes = shared_prefixes(shared, names)
        self.private_prefixes = private_prefixes(self.private, self.shared_prefixes, names) if self.private else ()
        check_ownership(self.owns, self.weights, [o.name for o in self.objectives], len(self.clients))
        if not isinstance(self.weights, str):
            self.weights = [float(p) for p in self.weights]
        if self.test is not None:
            self.test = self._checked(self.test, "the test data")
        if self.validation is not None:
            self.validation = self._checked(self.validation, "the validation data")
        if self.private and (self.test is not None or self.validation is not None):
            raise ValueError(
                "a model with private parameters must be evaluated per client, but got test or validation data; "
                "give client_test instead, one entry per client"
            )
        if self.client_test is not None and len(self.client_test) != self.N:
            raise ValueError(f"client_test must have one entry per client ({self.N}), but has {len(self.client_test)}")

    def __repr__(self) -> str:
        names = ", ".join(objective.name for objective in self.objectives)
        return f"<Problem {self.name!r}: {type(self.model).__name__}, objectives {names}, {self.N} clients>"

    @property
    def N(self) -> int:
        """The number of clients."""
        return len(self.clients)

    def client(self, i: int) -> Data:
        """The data of client i."""
        return self._checked(self.clients[i], f"the data of client {i}")

    def client_test_data(self, i: int) -> Data | None:
        """The test data of client i; None if it has none."""
        source = None if self.client_test is None else self.client_test[i]
        return None if source is None else self._checked(source, f"the test data of client {i}")

    def share(self, i: int) -> Share:
        """Client i's weight and the objectives that it owns. Its data are read at most once, if needed."""
        if i not in self._shares:
            names = [objective.name for objective in self.objectives]
            owned = self._labels(self.client(i)) if self.owns is None else [name in self.owns[i] for name in names]
            if isinstance(self.weights, str):
                weight = 1.0 if self.weights == "equal" else float(len(self.client(i)))
            else:
                weight = float(self.weights[i])
            self._shares[i] = Share(weight, tuple(owned))
        return self._shares[i]

    def shares_here(self) -> Mapping[int, Share]:
        """The shares of all clients for which no data of other machines are needed; none if all of these clients have
        weight 1 and own all objectives."""
        shares = {}
        for i in range(self.N):
            with contextlib.suppress(NotHereError):
                shares[i] = self.share(i)
        return unequal(shares)

    def contradiction(self, i: int, share: Share) -> str | None:
        """The reason why the share that client i reports contradicts `owns` or `weights`; None if it does not."""
        names = [objective.name for objective in self.objectives]
        if self.owns is not None and {names[k] for k in share.objectives} != set(self.owns[i]):
            claimed = [names[k] for k in share.objectives]
            return f"client {i} must own {sorted(self.owns[i])}, as at the server, but says that it owns {claimed}"
        if self.weights == "samples":
            return None
        weight = 1 if isinstance(self.weights, str) else self.weights[i]
        if share.weight != weight:
            return f"client {i} must have weight {weight}, as at the server, but says {share.weight}"
        return None

    def is_shared(self, name: str) -> bool:
        """Whether all objectives share the parameter of this name."""
        return self.shared_prefixes is None or is_under(name, self.shared_prefixes)

    @cached_property
    def channels_last(self) -> bool:
        """Whether the model uses the channels-last layout for kernels and images, which is faster on CPUs. It does if
        it can; this is determined once, on the data available here."""
        try:
            return self._fits_channels_last()
        except Exception:  # it fails in every layout, as `check` reports
            return True

    def flat_model(
        self, device: str = "cpu", precision: Precision = "float32", channels_last: bool | None = None
    ) -> FlatModel:
        """A copy of the model as one flat vector, in the layout `channels_last` (by default the problem's)."""
        layout = self.channels_last if channels_last is None else channels_last
        module = copy.deepcopy(self.model).to(device)
        return FlatModel(module, self.is_shared, precision, lambda name: is_under(name, self.private_prefixes), layout)

    def check(self) -> None:
        """Compute losses, gradients and metrics of two samples as in training, to find mistakes early."""
        self.channels_last = self._fits_channels_last()

    def _fits_channels_last(self) -> bool:
        """Whether the model works in the channels-last layout; one that flattens a convolution's output with `view`
        does not. If it works in no layout, its error is raised."""
        try:
            self._first_pass(channels_last=True)
        except RuntimeError as error:
            try:
                self._first_pass(channels_last=False)
            except Exception:
                raise error from None
            return False
        return True

    def _first_pass(self, channels_last: bool) -> None:
        """Compute losses, gradients and metrics of two samples as in training; do nothing without data."""
        data = self.some_data()
        if data is None:
            return
        stop = min(SAMPLES, len(data))
        model = self.flat_model(channels_last=channels_last)
        model.module.train()
        with during(f"before training, with a batch of {stop}"), seeded(model.device, 0, "first pass"):
            inputs, targets = data.batch(torch.arange(stop))
            which = [k for k in range(self.M) if self.has_target(targets, k)]
            augmented = inputs if self.transform is None else self.transform(inputs, generator(0, "first pass"))
            targets = model.move(targets)
            losses = self.losses(model(augmented), targets, which)
            for k, loss in zip(which, losses, strict=True):
                with during(f"in the gradient of objective {self.objectives[k].name!r}"):
                    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            model.module.eval()
            with torch.no_grad():
                outputs = model(inputs)
                for k in which:
                    self.scores(outputs, targets, k)

    def some_data(self) -> Data | None:
        """The data of the first client available here, else test or validation data; None if there are none."""
        for i in range(self.N):
            with contextlib.suppress(NotHereError):
                return self.client(i)
        here: Data | None = self.validation if self.test is None else self.test
        return here

    def _labels(self, data: Data) -> list[bool]:
        """For each objective, whether any sample of the data has a label for it. Usually the first sample is enough."""
        found = [False] * self.M
        for start in (0, *range(1, len(data), LOOK)):
            index = torch.arange(start, min(start + LOOK, len(data)) if start else 1)
            _, targets = data.batch(index)
            present = [self.has_target(targets, k) for k in range(self.M)]
            for k in range(self.M):
                found[k] |= present[k] and self.labelled(index, targets, k)[2] != 0
            if found == present:
                break
        return found

    def _checked(self, source: Any, what: str) -> Data:
        data = as_data(source, self.collate)
        if len(data) == 0:
            raise ValueError(f"{what} must have at least one sample, but is empty")
        return data
