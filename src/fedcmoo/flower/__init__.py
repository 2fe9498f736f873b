"""Flower applications: `client_app` and `server_app` create a Flower app for any problem and method.

Needs the extra `flower`.
"""

from fedcmoo.optional import require

require("flwr.app", "flower")

from fedcmoo.flower.client import client_app  # noqa: E402 - a missing flwr is reported above
from fedcmoo.flower.server import RunSettings, server_app  # noqa: E402

__all__ = ["RunSettings", "client_app", "server_app"]
