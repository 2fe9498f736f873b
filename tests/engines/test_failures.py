"""One rule for clients that fail, on every engine: with equal bits where the same clients fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from campaign.loopback import Loopback
from fedcmoo import FedCMOO, FedCMOOPref, Result, fit
from fedcmoo.client import Client
from fedcmoo.config import RunConfig
from fedcmoo.contributions import Arrays, Stage
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.engines.remote import Remote
from fedcmoo.failures import LONGEST, ClientFailedError, Skip, Stop, TooFewRepliesError, bounded
from fedcmoo.messages import BadMessageError, Field
from fedcmoo.methods import Method
from tests.core.problems import classification

METHOD = FedCMOO(client_lr=0.1, local_steps=2, batch_size=16)


@dataclass(frozen=True)
class Faulty(Stage):
    """Clients 1, 2 and 3 raise, send NaN, and send an array of another shape."""

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        if client.i == 1:
            raise LookupError("no such sample:\n17 \x1b[31m" + "x" * 10**6)
        if client.i == 2:
            return {
                name: array * float("nan") if array.is_floating_point() else array for name, array in arrays.items()
            }
        if client.i == 3:
            return {name: array.new_zeros(3, 3, 3) for name, array in arrays.items()}
        return arrays


def over_nodes(folder: Path, method: Method) -> Remote:
    return Remote(Loopback(folder, classification(), method, nodes=3, stages=[Faulty()]))


ENGINES: dict[str, Callable[[Path, Method], Engine]] = {
    "local": lambda folder, method: Local(),
    "pool": lambda folder, method: Pool(workers=2),
    "nodes": over_nodes,
}


def run(engine: Engine, method: Method = METHOD, **settings: Any) -> Result:
    return fit(classification(), method, 3, clients_per_round=8, engine=engine, stages=[Faulty()], **settings)


@pytest.mark.parametrize("method", [METHOD, FedCMOOPref(local_steps=2, batch_size=16)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("engine", list(ENGINES))
def test_the_run_goes_on_without_clients_that_fail(engine: str, method: Method, tmp_path: Path) -> None:
    result = run(ENGINES[engine](tmp_path / "nodes", method), method, on_failure="skip", folder=tmp_path / "run")
    for record in result.history:
        assert set(record.failures) == {"1", "2", "3"}
        assert all(len(why) <= LONGEST and why.isprintable() for why in record.failures.values())
        assert "LookupError" in record.failures["1"]
        assert "finite" in record.failures["2"]
    assert (tmp_path / "run" / "history.jsonl").stat().st_size < 10**4
    reference = run(Local(), method, on_failure="skip")
    for mine, yours in zip(result.model.state_dict().values(), reference.model.state_dict().values(), strict=True):
        assert torch.equal(mine, yours)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_by_default_the_first_failure_ends_the_run(engine: str, tmp_path: Path) -> None:
    with pytest.raises((LookupError, BadMessageError, ClientFailedError), match=r"no such sample|client [123]"):
        run(ENGINES[engine](tmp_path, METHOD))


def test_a_round_with_too_few_replies_is_undone_and_several_end_the_run(tmp_path: Path) -> None:
    problem = classification()
    with pytest.raises(TooFewRepliesError, match="at least 6 clients must reply, but 5 did: client 1: LookupError"):
        fit(
            *(problem, METHOD, 9),
            clients_per_round=8,
            engine=Local(),
            stages=[Faulty()],
            on_failure=Skip(min_replies=6),
            folder=tmp_path,
        )
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(lines) == 4
    assert all("at least 6 clients must reply" in json.loads(line)["undone"] for line in lines)


def test_is_a_setting_of_a_run() -> None:
    assert RunConfig().on_failure == Stop()
    config = RunConfig.from_table({"on_failure": {"name": "skip", "min_replies": 3}})
    assert config.on_failure == Skip(min_replies=3)
    assert RunConfig.from_table(config.to_table()) == config


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"on_failure": "panic"}, "on_failure 'panic' is not known"),
        ({"on_failure": Skip(min_replies=9)}, r"min_replies must be at most clients_per_round \(8\), but got 9"),
    ],
)
def test_refuses_bad_settings(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        run(Local(), **settings)


@pytest.mark.parametrize("text", ["", "a" * 10**6, "\x00\x1b]0;title\x07", "\u202eevil\ud800", "a\r\nb\tc"])
def test_texts_from_elsewhere_are_one_short_printable_line(text: str) -> None:
    line = bounded(text)
    assert len(line) <= LONGEST
    assert line.isprintable()
    line.encode()


def test_refusals_name_their_class() -> None:
    failures: dict[int, str] = {}
    Skip().failed(failures, 1, BadMessageError("client 1 must send []"))
    assert failures == {1: "BadMessageError: client 1 must send []"}
