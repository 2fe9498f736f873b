"""The engine benchmark measures what it says."""

from __future__ import annotations

import pytest

from fedcmoo.bench.engines import EngineCost, measure, table


def test_an_engine_is_timed_and_compared() -> None:
    said: list[str] = []
    (cost,) = measure(["local"], rounds=3, say=said.append)
    assert cost.engine == "local"
    assert cost.equal
    assert cost.start > 0
    assert cost.round > 0
    assert said == ["measuring local"]


def test_what_is_not_installed_is_a_remark_and_no_number() -> None:
    grid = table([EngineCost("local", 1.0, 0.5, equal=True), EngineCost("ray", remark="pip install 'fedcmoo[ray]'")])
    columns = list(zip(*grid.rows, strict=True))
    assert columns[0] == ("local", "ray")
    assert columns[2] == ("0.500 s", "–")
    assert columns[5] == ("yes", "pip install 'fedcmoo[ray]'")


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"engines are local, .*flower, but got 'quantum'"):
        measure(["quantum"])
    with pytest.raises(ValueError, match="rounds must be at least 2"):
        measure(["local"], rounds=1)
    with pytest.raises(ValueError, match="nodes must be a whole number of at least 1, but got 0"):
        measure(["flower"], nodes=0)


def test_secure_sums_cost_less_than_half_as_many_bytes_again() -> None:
    (cost,) = measure(["local"], rounds=2, secure=True, say=lambda line: None)
    assert 0 < cost.masking < cost.round
    assert 1 < cost.bytes < 1.5
    with pytest.raises(ValueError, match="local, flower"):
        measure(["pool"], secure=True)
