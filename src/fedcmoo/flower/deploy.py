"""A complete Flower federation on this machine, for demos, tests and benchmarks: SuperLink and SuperNodes on loopback.

All parts are Flower's own. There are no outside connections, all files are in one folder, and all processes are ended,
even if this one is killed.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fedcmoo.flower import warm
from fedcmoo.flower.keys import write_proxy
from fedcmoo.flower.supervisor import Supervisor
from fedcmoo.settings import write_toml

HOST = "127.0.0.1"
NAME = "loopback"


class DeploymentError(OSError):
    """A part of a federation failed; the message says where its log is."""


@dataclass
class Deployment:
    """SuperLink and SuperNodes on loopback, for the duration of the `with` block.

    Args:
        folder: the folder for Flower's files, logs and spools.
        nodes: the number of SuperNodes started at the beginning; `start_node` starts more.
        node_config: further settings of every node; "{partition}" in it is the node's number.
        keys: the folder of `write_keys`, for TLS and node authentication; None for neither.
        proxy: let nodes reach the SuperLink only through nginx, as `fedcmoo flower keys` prints it.
        durable: keep the SuperLink's state in a file, so that nodes reconnect after it was killed and restarted.
    """

    folder: Path
    nodes: int = 3
    node_config: str = ""
    keys: Path | None = None
    proxy: bool = False
    durable: bool = False
    node: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    superlink: subprocess.Popen[bytes] = field(init=False, repr=False)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)
    _supervisor: Supervisor = field(init=False, repr=False)
    _on_sigterm: Any = field(default=None, init=False, repr=False)

    def __enter__(self) -> Self:
        # On SIGTERM, end the other processes first; only a main thread may set this handler.
        if threading.current_thread() is threading.main_thread():
            self._on_sigterm = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        self._supervisor = Supervisor()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def env(self) -> dict[str, str]:
        """The environment of every process: offline, quiet, one thread, all files in the deployment's folder."""
        return {
            **os.environ,
            "PATH": os.pathsep.join(
                [str(self.folder / "bin"), sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]
            ),
            "TMPDIR": str(self.folder / "tmp"),
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "NO_PROXY": f"{HOST},localhost",
            "no_proxy": f"{HOST},localhost",
            "OMP_NUM_THREADS": "1",
        }

    def start_superlink(self) -> None:
        """Start the SuperLink, or restart it if it was killed."""
        connection: dict[str, object] = {"address": f"{HOST}:{self.port}"}
        command = ["flower-superlink", "--host", HOST, "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation"]
        if self.durable:
            command += ["--database", str(self.folder / "superlink.db")]
        if self.keys is None:
            command += ["--insecure"]
            connection["insecure"] = True
        else:
            command += ["--ssl-ca-certfile", str(self.keys / "ca.crt"), "--enable-supernode-auth"]
            command += ["--ssl-certfile", str(self.keys / "server.crt"), "--ssl-keyfile", str(self.keys / "server.key")]
            connection["root-certificates"] = str(self.keys / "ca.crt")
        (self.folder / "flwr" / "config.toml").write_text(write_toml({"superlink": {NAME: connection}}))
        while _listening(self.port):  # of a SuperLink that was just killed
            time.sleep(0.05)
        self.superlink = self._launch("superlink", command)
        self._await_port(self.superlink, self.port, "superlink")

    def start_proxy(self) -> None:
        """Start nginx before the SuperLink; nodes that are started from now on connect to it."""
        assert self.keys is not None, "a proxy needs keys"
        self.fleet_port = free_port()
        write_proxy(self.keys, listen=f"{HOST}:{self.fleet_port}", superlink=f"{HOST}:{self.port}")
        nginx = self._launch("proxy", ["nginx", "-p", str(self.keys), "-c", "nginx.conf"])
        self._await_port(nginx, self.fleet_port, "proxy")

    def start_node(self, partition: int, partitions: int | None = None, key: Path | None = None) -> None:
        """Start a SuperNode that holds the clients of this partition."""
        config = f"partition-id={partition} num-partitions={partitions or self.nodes} "
        config += self.node_config.format(partition=partition)
        command = ["flower-supernode", "--superlink", f"{HOST}:{self.fleet_port}"]
        command += ["--host", HOST, "--port", str(free_port())]
        command += ["--node-config", config]
        if self.keys is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self.keys / "ca.crt")]
            command += ["--auth-supernode-private-key", str(key or self.keys / f"node-{partition}")]
        self.node[partition] = self._launch(f"node-{partition}", command)

    def run(self, app: Path, config: Mapping[str, object]) -> subprocess.Popen[bytes]:
        """Start a run of a Flower app; the process ends when the run does, successful or not."""
        settings = write_toml({key.replace("_", "-"): value for key, value in config.items()}).split("\n")
        command = ["flwr", "run", str(app), NAME, "--stream"]
        for setting in filter(None, settings):
            command += ["--run-config", setting.replace(" = ", "=", 1)]
        return self._launch("run", command)

    def flwr(self, *arguments: str) -> None:
        """Run one of Flower's own commands against this federation."""
        done = subprocess.run(
            ["flwr", *arguments], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode != 0:
            raise DeploymentError(f"flwr {arguments[0]} failed: {done.stdout.decode(errors='replace')}")

    def log(self, name: str) -> str:
        """The log of "superlink", "node-0", …, or of the last "run"."""
        return (self.folder / "logs" / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        """End every process that was started, and their children: first by a request, then by force after three seconds
        or a second Ctrl-C."""
        try:
            for process in self._started:
                _signal_group(process, signal.SIGTERM)
            until = time.monotonic() + 3
            while any(process.poll() is None for process in self._started) and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            for process in self._started:
                _signal_group(process, signal.SIGKILL)  # including processes that its leader left behind
                process.wait()
            self._started.clear()
            self._supervisor.close()
            if self._on_sigterm is not None:
                signal.signal(signal.SIGTERM, self._on_sigterm)
                self._on_sigterm = None

    def _start(self) -> None:
        for name in ("bin", "tmp", "flwr", "logs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # Every further process is forked from one that has torch and Flower imported.
        self._await_warm(self._launch("warm", [sys.executable, "-m", warm.__name__, str(self.folder / "bin")]))
        self.port = self.fleet_port = free_port()
        self.start_superlink()
        if self.proxy:
            self.start_proxy()
        if self.keys is not None:
            for n in range(self.nodes):
                self.flwr("supernode", "register", str(self.keys / f"node-{n}.pub"), NAME)
        for n in range(self.nodes):
            self.start_node(n)

    def _launch(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "logs" / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        self._supervisor.watch(process)
        self._started.append(process)
        return process

    def _await_warm(self, process: subprocess.Popen[bytes]) -> None:
        while not (self.folder / "bin" / warm.ALL[-1]).exists():
            if process.poll() is not None:
                raise DeploymentError(f"the process that others fork from did not start:\n{self.log('warm')}")
            time.sleep(0.05)

    def _await_port(self, process: subprocess.Popen[bytes], port: int, name: str) -> None:
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if _listening(port):
                return
            time.sleep(0.1)
        raise DeploymentError(f"the {name} did not start:\n{self.log(name)}")


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _signal_group(process: subprocess.Popen[bytes], signum: int) -> None:
    """Signal a process and its children; each process that was started has its own group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)
