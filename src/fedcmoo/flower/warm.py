"""Fast starts of Flower's commands, by forking from a process with all imports done.

A SuperNode starts `flwr-clientapp`, a new Python process, for every message; most of a small round is then spent on
importing torch and Flower again. Here one process imports them once and waits. A stand-in for the command, in front of
Flower's own in PATH, asks it to fork, and the fork runs the unchanged command: each message still has its own process.
(Flower itself is not changed; if it does not start commands by name, there is no speed-up.)

    python -m fedcmoo.flower.warm FOLDER      # put FOLDER in front of PATH
"""

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Never

from fedcmoo.optional import pip_line

CLIENT_APP = ("flwr-clientapp",)
ALL = ("flwr", "flwr-clientapp", "flwr-serverapp", "flower-superexec", "flower-superlink", "flower-supernode")

PRELOAD = ("fedcmoo.flower", "fedcmoo.config", "sklearn.datasets")
"""The modules that apps of ready-made problems import."""

STAND_IN = """\
#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
socket.send_fds(connection, [b"."], [0, 1, 2])
connection.sendall(json.dumps([sys.argv, os.getcwd(), os.getpgrp(), dict(os.environ)]).encode())
connection.shutdown(socket.SHUT_WR)
sys.exit(int(connection.recv(16) or b"1"))  # the fork holds the other end
"""


class Warm:
    """Stand-ins for some of Flower's commands in a folder, and the process that forks for them. It imports Flower,
    torch, this library and the modules `preload`."""

    def __init__(self, folder: Path, commands: Sequence[str] = ALL, preload: Sequence[str] = ()) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        address = str(folder / "socket")
        self.listener.bind(address)
        self.listener.listen()
        for module in (*PRELOAD, *preload):
            importlib.import_module(module)
        self._functions = {name: _function(name) for name in commands}
        for name in commands:
            path = folder / name
            path.write_text(STAND_IN.format(python=sys.executable, address=address))
            path.chmod(0o700)

    def serve(self, node: subprocess.Popen[bytes] | None = None) -> int:
        """Fork for every stand-in that connects, until a process ends (forever if None); returns its exit code."""
        forks: set[int] = set()
        with self.listener:
            while node is None or node.poll() is None:
                ready, _, _ = select.select([self.listener], [], [], 0.1)
                if ready:
                    forks.add(self._fork())
                forks = {fork for fork in forks if os.waitpid(fork, os.WNOHANG) == (0, 0)}
        return node.returncode

    def _fork(self) -> int:
        connection, _ = self.listener.accept()
        with connection:
            fork = os.fork()
            if fork == 0:
                self.listener.close()
                _become(connection, self._functions)
        return fork


def run_node(arguments: Sequence[str], preload: Sequence[str] = ()) -> int:
    """Run `flower-supernode` with these arguments and warm client apps; returns its exit code."""
    # Beside this Python first: its Flower is the one that the stand-ins run.
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = shutil.which("flower-supernode", path=places)
    if command is None:
        raise FileNotFoundError(
            f"flower-supernode must be beside {sys.executable} or in PATH, but is not: {pip_line('flower')}"
        )
    with tempfile.TemporaryDirectory(prefix="fedcmoo-node-") as folder:
        warm = Warm(Path(folder), CLIENT_APP, preload)
        env = {**os.environ, "PATH": os.pathsep.join([folder, places])}
        node = subprocess.Popen([command, *arguments], env=env)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda number, frame: node.send_signal(number))
        return warm.serve(node)


def _function(command: str) -> Callable[[], Any]:
    """The function behind one of Flower's commands."""
    (point,) = entry_points(group="console_scripts", name=command)
    function: Callable[[], Any] = point.load()
    return function


def _become(connection: socket.socket, functions: Mapping[str, Callable[[], Any]]) -> Never:
    """Run the command in the fork, and exit with its exit code."""
    code = 1
    try:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_DFL)
        for standard, given in enumerate(socket.recv_fds(connection, 1, 3)[1]):
            os.dup2(given, standard)
        with connection.makefile("rb") as reader:
            sys.argv, folder, group, env = json.loads(reader.read())
        with contextlib.suppress(PermissionError):  # in another session; otherwise one signal reaches both
            os.setpgid(0, group)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        code = functions[Path(sys.argv[0]).name]() or 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            connection.sendall(str(code).encode())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    Warm(Path(sys.argv[1])).serve()
