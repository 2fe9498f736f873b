"""The server's side of a federation: certificates, a key pair for each node, the proxy between nodes and SuperLink."""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1")
"""The host names by which its proxy and its operator reach the SuperLink."""

NGINX = """\
# Sites reach the nodes' interface of the SuperLink and nothing else: whoever reaches /v1/control can have code of
# their choice run on every node. Start with: nginx -p {folder} -c nginx.conf
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path nginx-temp/body;
    proxy_temp_path nginx-temp/proxy;
    fastcgi_temp_path nginx-temp/fastcgi;
    uwsgi_temp_path nginx-temp/uwsgi;
    scgi_temp_path nginx-temp/scgi;
    server {{
        listen {listen} ssl;
        ssl_certificate server.crt;
        ssl_certificate_key server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        client_max_body_size 16m;  # Flower sends arrays in pieces of 5 MB
        client_body_buffer_size 16m;
        proxy_max_temp_file_size 0;
        location /v1/fleet/ {{
            limit_except POST {{ deny all; }}
            proxy_pass https://{superlink}/v1/fleet/;  # with the path, so that nothing else can be asked for
            proxy_http_version 1.1;
            proxy_read_timeout 300s;
            proxy_ssl_trusted_certificate ca.crt;
            proxy_ssl_name localhost;
            proxy_ssl_verify on;
        }}
        location / {{ return 403; }}
    }}
}}
"""
"""One port of a SuperLink serves nodes, operators and runs, and requires no credentials from operators. So it stays on
loopback, behind nginx, which forwards only what nodes need: Flower's fleet interface."""


def write_keys(folder: Path, nodes: int, hosts: Sequence[str], days: int = 365) -> list[Path]:
    """Write the certificates and keys for TLS and node authentication.

    ca.crt, ca.key          the federation's own certificate authority; every node needs ca.crt, and none ca.key
    server.crt, server.key  the certificate of the SuperLink and its proxy, for `hosts` and for loopback
    node-0, node-0.pub, …   a key pair for each node (ECDSA P-384), the public one to register at the SuperLink

    Args:
        folder: created if it does not exist; must contain none of these files.
        nodes: the number of key pairs.
        hosts: names and addresses under which nodes reach the server.
        days: how long the certificates are valid.
    """
    if nodes < 1 or days < 1 or not hosts:
        raise ValueError(f"nodes, days and hosts must be at least one each, but got {nodes}, {days}, {list(hosts)}")
    folder.mkdir(parents=True, exist_ok=True)
    authority, ca = _authority(days)
    server, certificate = _server(authority, ca, list(dict.fromkeys([*hosts, *LOOPBACK])), days)
    files = {
        "ca.key": _private(authority),
        "ca.crt": ca.public_bytes(Encoding.PEM),
        "server.key": _private(server),
        "server.crt": certificate.public_bytes(Encoding.PEM),
    }
    for n in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        files[f"node-{n}"] = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        files[f"node-{n}.pub"] = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise FileExistsError(f"keys are never overwritten, but {folder} already has {', '.join(there)}")
    for name, data in files.items():
        _write_new(folder / name, data, secret=not name.endswith((".crt", ".pub")))
    return [folder / name for name in files]


def write_proxy(folder: Path, listen: str, superlink: str) -> Path:
    """Write the configuration of nginx beside the keys of `write_keys`: nodes connect to the port (or address and port)
    `listen`, and the SuperLink is at the address and port `superlink`, on loopback."""
    (folder / "nginx-temp").mkdir(exist_ok=True)
    path = folder / "nginx.conf"
    path.write_text(NGINX.format(folder=folder.resolve(), listen=listen, superlink=superlink))
    return path


def commands(folder: Path, nodes: int, host: str, port: int = 8443, superlink: str = "127.0.0.1:8000") -> str:
    """The commands that use the keys, as text: the SuperLink on loopback, a proxy for the nodes, the nodes."""
    address, _, own_port = superlink.partition(":")
    lines = [
        "# the server: the SuperLink on loopback, since whoever reaches it can run code on every node",
        f"flower-superlink --host {address} --port {own_port} --database superlink.db \\",
        "    --disable-runtime-dependency-installation \\",
        f"    --ssl-ca-certfile {folder}/ca.crt --ssl-certfile {folder}/server.crt \\",
        f"    --ssl-keyfile {folder}/server.key --enable-supernode-auth",
        "",
        f"# the server: through this proxy (port {port}), nodes reach only the nodes' interface",
        f"nginx -p {folder} -c nginx.conf",
        "",
        "# the operator's Flower configuration ($FLWR_HOME/config.toml, by default ~/.flwr/config.toml), on the server",
        f"# or on another machine after `ssh -N -L {own_port}:{superlink} {host}`",
        "[superlink.federation]",
        f'address = "{superlink}"',
        f'root-certificates = "{folder.resolve()}/ca.crt"',
        "",
        "# the operator, once for each node",
        *(f"flwr supernode register {folder}/node-{n}.pub federation" for n in range(nodes)),
    ]
    for n in range(nodes):
        lines += [
            "",
            f"# node {n}, which needs ca.crt and node-{n}",
            f"fedcmoo flower node --superlink {host}:{port} --root-certificates ca.crt \\",
            f'    --auth-supernode-private-key node-{n} --node-config "partition-id={n} num-partitions={nodes}"',
        ]
    return "\n".join(lines)


def _authority(days: int) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedcmoo federation")])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, builder.sign(key, hashes.SHA384())


def _server(
    authority: ec.EllipticCurvePrivateKey, ca: x509.Certificate, hosts: Sequence[str], days: int
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    builder = (
        _builder(name, ca.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
    )
    return key, builder.sign(authority, hashes.SHA384())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_new(path: Path, data: bytes, secret: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
