"""The files that `fedcmoo flower init` and `fedcmoo flower keys` write."""

from __future__ import annotations

import importlib
import ipaddress
import runpy
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.app import Context, RecordDict

from fedcmoo.config import RunConfig
from fedcmoo.data.remote import NotHereError, RemoteClients
from fedcmoo.flower import RunSettings
from fedcmoo.flower.keys import commands, write_keys
from fedcmoo.flower.template import write_app
from fedcmoo.optional import MissingExtraError
from fedcmoo.settings import SettingsError

CONFIG = RunConfig.from_table(
    {"rounds": 7, "clients_per_round": 2, "seed": 4, "problem": {"name": "two-digits", "clients": 4, "train_pairs": 40}}
)


def context(run_config: dict[str, bool | float | int | str]) -> Context:
    return Context(run_id=1, node_id=2, node_config={}, state=RecordDict({}), run_config=run_config, series_id=0)


def test_an_app_builds_the_problem_and_reads_the_run_of_its_configuration(tmp_path: Path) -> None:
    write_app(tmp_path / "app", CONFIG)
    table = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert table["components"]["clientapp"] == "federation.client_app:app"
    settings = RunSettings.of(context(table["config"]))
    assert (settings.rounds, settings.clients_per_round, settings.seed, settings.folder) == (7, 2, 4, None)
    task = runpy.run_path(str(tmp_path / "app" / "federation" / "task.py"))
    assert task["method"](context(table["config"])) == CONFIG.method
    assert task["problem"](context(table["config"])).N == 4


def test_an_app_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="must be empty"):
        write_app(tmp_path, CONFIG)


@pytest.mark.parametrize("acceptance", [{"name": "bounded-rise"}, {"name": "bounded", "patience": 5}])
def test_acceptance_settings_that_an_app_does_not_have_are_refused(acceptance: Any, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"only acceptance\.max_norm, but got"):
        write_app(tmp_path / "app", RunConfig.from_table({"acceptance": acceptance}))
    assert not (tmp_path / "app").exists()


def test_the_run_config_may_hold_keys_of_the_user_but_no_wrong_values() -> None:
    assert RunSettings.of(context({"my-data": "here", "min-replies": 2})).min_replies == 2
    with pytest.raises(SettingsError, match="rounds must be a whole number, but got 'many'"):
        RunSettings.of(context({"rounds": "many"}))


def test_the_servers_certificate_is_signed_by_the_authority(tmp_path: Path) -> None:
    write_keys(tmp_path, nodes=1, hosts=["fed.example.org", "192.0.2.7"], days=2)
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fed.example.org", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(a) for a in ("192.0.2.7", "127.0.0.1")]
    assert (server.not_valid_after_utc - server.not_valid_before_utc).days == 2
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_each_node_has_its_own_key_pair_on_p384(tmp_path: Path) -> None:
    write_keys(tmp_path, nodes=2, hosts=["localhost"])
    publics = []
    for n in range(2):
        private = load_ssh_private_key((tmp_path / f"node-{n}").read_bytes(), None)
        public = load_ssh_public_key((tmp_path / f"node-{n}.pub").read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert isinstance(private.curve, ec.SECP384R1)
        assert private.public_key() == public
        publics.append(public)
    assert publics[0] != publics[1]


def test_private_keys_are_private_and_never_overwritten(tmp_path: Path) -> None:
    write_keys(tmp_path, nodes=1, hosts=["localhost"])
    for name in ("ca.key", "server.key", "node-0"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    before = (tmp_path / "node-0").read_bytes()
    with pytest.raises(FileExistsError, match="never overwritten"):
        write_keys(tmp_path, nodes=2, hosts=["localhost"])
    assert (tmp_path / "node-0").read_bytes() == before
    assert not (tmp_path / "node-1").exists()


def test_the_printed_superlink_is_on_loopback_with_tls_and_nodes_go_to_the_proxy(tmp_path: Path) -> None:
    text = commands(tmp_path, 3, "fed.example.org")
    assert "--host 127.0.0.1 --port 8000" in text
    assert "0.0.0.0" not in text
    assert "insecure" not in text
    assert text.count("fedcmoo flower node --superlink fed.example.org:8443 --root-certificates ca.crt") == 3
    write_app(tmp_path / "app", CONFIG)
    readme = (tmp_path / "app" / "README.md").read_text()
    assert "insecure" not in readme
    assert "flower-superlink" not in readme  # but for the command that `fedcmoo flower keys` prints


def test_the_printed_commands_name_every_node(tmp_path: Path) -> None:
    text = commands(tmp_path, 3, "fed.example.org")
    for n in range(3):
        assert f"register {tmp_path}/node-{n}.pub" in text
        assert f"partition-id={n} num-partitions=3" in text


def test_a_server_needs_no_clients_data() -> None:
    clients = RemoteClients(3, here={1: "mine"})
    assert len(clients) == 3
    assert clients[1] == "mine"
    with pytest.raises(NotHereError, match="client 0 are on another machine"):
        clients[0]
    with pytest.raises(IndexError):
        clients[3]
    with pytest.raises(ValueError, match="from 0 to N - 1"):
        RemoteClients(3, here={3: "?"})


def test_without_flower_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    monkeypatch.delitem(sys.modules, "fedcmoo.flower")
    with pytest.raises(MissingExtraError, match=r"flwr.*pip install '"):
        importlib.import_module("fedcmoo.flower")
