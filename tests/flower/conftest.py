"""A federation on loopback that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fedcmoo.flower.deploy import Deployment


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A SuperLink and three SuperNodes."""
    pytest.importorskip("flwr")
    from fedcmoo.flower.deploy import Deployment

    with Deployment(tmp_path_factory.mktemp("federation"), nodes=3, durable=True) as deployment:
        yield deployment
