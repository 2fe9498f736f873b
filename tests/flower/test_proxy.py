"""A site that has the federation's public certificate reaches the nodes' interface, and nothing else."""

from __future__ import annotations

import http.client
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedcmoo.config import RunConfig
from fedcmoo.flower.demo import run_app
from fedcmoo.flower.deploy import HOST, Deployment, free_port
from fedcmoo.flower.keys import write_keys, write_proxy
from fedcmoo.flower.template import write_app

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")

CONFIG = RunConfig.from_table(
    {
        "rounds": 1,
        "clients_per_round": 2,
        "problem": {"name": "two-digits", "clients": 2, "train_pairs": 40, "validation_pairs": 20, "test_pairs": 20},
        "method": {"name": "fedavg", "local_steps": 1},
    }
)


class Upstream(http.server.BaseHTTPRequestHandler):
    """Stands for the SuperLink: notes down what reaches it."""

    paths: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.paths.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - the name that http.server looks for

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proxy") / "keys"
    write_keys(folder, nodes=1, hosts=["localhost"])
    return folder


@pytest.fixture(scope="module")
def proxy(keys: Path) -> Iterator[int]:
    """The port of an nginx in front of `Upstream`."""
    server = http.server.ThreadingHTTPServer((HOST, 0), Upstream)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = free_port()
    write_proxy(keys, listen=f"{HOST}:{port}", superlink=f"{HOST}:{server.server_port}")
    with subprocess.Popen(["nginx", "-p", str(keys), "-c", "nginx.conf"]) as nginx:
        while nginx.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) == 0:
                    break
            time.sleep(0.05)
        yield port
        nginx.terminate()
    server.shutdown()
    server.server_close()


def post(port: int, keys: Path, path: str, body: bytes = b"", method: str = "POST") -> int:
    """The status of a request, with the path as it is."""
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=False)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_nodes_interface_passes(proxy: int, keys: Path) -> None:
    Upstream.paths.clear()
    assert post(proxy, keys, "/v1/fleet/pull-messages", b"x" * 6_000_000) == 200
    assert Upstream.paths == ["/v1/fleet/pull-messages"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/",
        "/docs",
        "/openapi.json",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "/v1/fleet//../../v1/control/start-run",
        "//v1/control/start-run",
        "/V1/CONTROL/start-run",
        "/v1/fleet",
        "/v1/fleetx/../control/start-run",
        "/v1/control/start-run?/v1/fleet/",
        "/v1/control/start-run#/v1/fleet/",
        "https://localhost/v1/control/start-run",
    ],
)
def test_nothing_else_passes(proxy: int, keys: Path, path: str) -> None:
    Upstream.paths.clear()
    assert post(proxy, keys, path) in (301, 400, 403)
    assert Upstream.paths == []


def test_other_methods_and_large_requests_are_refused(proxy: int, keys: Path) -> None:
    Upstream.paths.clear()
    assert post(proxy, keys, "/v1/fleet/pull-messages", method="GET") == 403
    assert post(proxy, keys, "/v1/fleet/push-object", b"x" * 17_000_000) == 413
    assert Upstream.paths == []


@pytest.mark.deployment
def test_a_site_with_the_public_certificate_cannot_start_a_run(tmp_path: Path) -> None:
    """The operator's run goes through the proxy to the node; the same command from a site does not even start."""
    write_keys(tmp_path / "keys", nodes=1, hosts=["localhost"])
    app, out = tmp_path / "app", tmp_path / "out"
    write_app(app, CONFIG)
    with Deployment(tmp_path / "federation", nodes=1, keys=tmp_path / "keys", proxy=True) as federation:
        run_app(federation, app, {"folder": str(out)}, out, print, timeout=240)
        assert federation.log("superlink").count("/v1/control/start-run") == 1
        home = tmp_path / "site"
        home.mkdir()
        shutil.copy(tmp_path / "keys" / "ca.crt", home / "ca.crt")
        (home / "config.toml").write_text(
            f'[superlink.theirs]\naddress = "localhost:{federation.fleet_port}"\nroot-certificates = "{home}/ca.crt"\n'
        )
        attack = subprocess.run(
            ["flwr", "run", str(app), "theirs"],
            env={**federation.env, "FLWR_HOME": str(home)},
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert attack.returncode != 0, attack.stdout
        assert federation.log("superlink").count("/v1/control/start-run") == 1
        assert os.listdir(out)
