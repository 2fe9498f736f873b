"""A SuperNode whose client apps start at once.

A SuperNode starts `flwr-clientapp`, a new Python process, for every message; most of a small round is then spent on
importing torch and Flower again. Here one process imports them once and waits; a `flwr-clientapp` in front of Flower's
own in PATH asks it to fork, and the fork runs Flower's command as it is. Each message still has a process of its own.

    python -m fedcmoo.engines.flower.warm [--preload MODULE ...] [options of flower-supernode]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any

COMMAND = "flwr-clientapp"

SHIM = """\
#!{python} -IS
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
line.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
line.shutdown(socket.SHUT_WR)
line.recv(1)  # the fork holds the other end: this returns when it is done
"""


PRELOAD = ("fedcmoo.engines.flower", "fedcmoo.config", "sklearn.datasets")
"""What client apps of ready-made problems import."""


def run_node(arguments: Sequence[str], preload: Sequence[str] = ()) -> int:
    """Run `flower-supernode` with warm client apps; returns its exit code.

    Args:
        arguments: of `flower-supernode`.
        preload: modules that the apps import, beside Flower, torch and this library.
    """
    with tempfile.TemporaryDirectory(prefix="fedcmoo-node-") as folder:
        address = str(Path(folder) / "socket")
        shim = Path(folder) / COMMAND
        shim.write_text(SHIM.format(python=sys.executable, address=address))
        shim.chmod(0o700)
        env = {**os.environ, "PATH": os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            node = subprocess.Popen(["flower-supernode", *arguments], env=env)

            def end(signum: int, frame: FrameType | None) -> None:
                node.send_signal(signum)

            for signum in (signal.SIGTERM, signal.SIGINT):
                signal.signal(signum, end)
            return _serve(listener, node.pid, _load(preload))


def _load(preload: Sequence[str]) -> Callable[[], Any]:
    """Import what client apps need; returns the function behind Flower's command."""
    for module in (*PRELOAD, *preload):
        importlib.import_module(module)
    (command,) = entry_points(group="console_scripts", name=COMMAND)
    function: Callable[[], Any] = command.load()
    return function


def _serve(listener: socket.socket, node: int, function: Callable[[], Any]) -> int:
    """Fork for every connection, until the SuperNode ends."""
    while True:
        ready, _, _ = select.select([listener], [], [], 0.2)
        if ready:
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become(line, function)
            line.close()
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == node:
                    return os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return 1


def _become(line: socket.socket, function: Callable[[], Any]) -> None:
    """In the fork: do what the command would do, and exit as it would."""
    code = 1
    try:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_DFL)
        with line.makefile("rb") as reader:
            sys.argv, folder, env = json.loads(reader.read())
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        function()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preload", action="append", default=[])
    known, others = parser.parse_known_args()
    sys.exit(run_node(others, known.preload))
