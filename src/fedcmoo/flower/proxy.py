"""The reverse proxy between nodes and the SuperLink, which passes only Flower's fleet interface.

One port of a SuperLink serves nodes, operators and runs, and requires no credentials from operators. So it stays on
loopback, behind nginx, which forwards only what nodes need.
"""

from __future__ import annotations

from pathlib import Path

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


def write_proxy(folder: Path, listen: str, superlink: str) -> Path:
    """Write the configuration of nginx beside the keys of `write_keys`: nodes connect to the port (or address and port)
    `listen`, and the SuperLink is at the address and port `superlink`, on loopback."""
    (folder / "nginx-temp").mkdir(exist_ok=True)
    path = folder / "nginx.conf"
    path.write_text(NGINX.format(folder=folder.resolve(), listen=listen, superlink=superlink))
    return path
