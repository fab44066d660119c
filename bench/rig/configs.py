"""Configuration files of the routers that take their fleet from one."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Setup:
    """A fleet and where its router shall listen: what a configuration is made of."""

    #: HOST:PORT of the workers, and the number of the model that each serves.
    addresses: tuple[str, ...]
    models: tuple[int, ...]
    n_models: int
    #: The scenario's policy: "rr", "sticky" or "cache".
    policy: str
    #: Run directory, and the path of the configuration file in it.
    dir: Path
    cfg: Path
    #: Where the router listens, and its metrics port.
    port: int
    mport: int
    #: Seconds between two health checks.
    health_s: int

    @property
    def urls(self) -> list[str]:
        """The workers' base URLs."""
        return [f"http://{address}" for address in self.addresses]


def nginx(s: Setup) -> str:
    """One worker process, keep-alive both ways, no buffering of answers."""
    balance = {"rr": "", "sticky": "hash $http_x_session_id consistent;"}[s.policy]
    servers = "\n    ".join(f"server {address};" for address in s.addresses)
    return f"""
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {s.dir}/nginx.pid;
error_log {s.dir}/nginx.err warn;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path {s.dir}/nb; proxy_temp_path {s.dir}/np;
  fastcgi_temp_path {s.dir}/nf; uwsgi_temp_path {s.dir}/nu; scgi_temp_path {s.dir}/ns;
  upstream fleet {{
    zone fleet {max(8, len(s.addresses) // 250)}m;
    {balance}
    {servers}
    keepalive {max(512, 2 * len(s.addresses))};
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{s.port} backlog=2048;
    keepalive_requests 100000000;
    client_max_body_size 64m;
    client_body_buffer_size 128k;
    location / {{
      proxy_pass http://fleet;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 300s;
    }}
  }}
}}
"""


def haproxy(s: Setup) -> str:
    """One model: plain proxying. Several: the model is read from the JSON body."""
    balance = {
        "rr": "balance roundrobin",
        "sticky": "balance hdr(x-session-id)\n  hash-type consistent",
    }[s.policy]
    several = s.n_models > 1
    parts = [
        f"""
global
  nbthread 1
  maxconn {_most_connections(s)}
  {"tune.bufsize 131072" if several else ""}
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  option http-keep-alive
  http-reuse always
  default-server check inter {s.health_s}s pool-max-conn -1
  option httpchk GET /health
frontend in
  bind 127.0.0.1:{s.port} backlog 2048
"""
    ]
    if several:
        parts.append(
            "  option http-buffer-request\n"
            "  http-request set-var(txn.model) req.body,json_query('$.model')\n"
            "  use_backend %[var(txn.model)] if { var(txn.model) -m found }\n"
        )
    parts.append("  default_backend model-0\n")
    for model in range(s.n_models):
        parts.append(f"backend model-{model}\n  {balance}\n")
        parts += [
            f"  server w{number} {address}\n"
            for number, address in enumerate(s.addresses)
            if s.models[number] == model
        ]
    return "".join(parts)


def _most_connections(s: Setup) -> int:
    """As haproxy counts: two descriptors a connection, and one for each check."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1000, min(8000, (limit - len(s.addresses) - 1000) // 2))


def litellm(s: Setup) -> str:
    """Its shuffle over the workers, without retries or records of spending."""
    workers = [
        f"  - model_name: model-{model}\n    litellm_params:\n"
        f"      model: openai/model-{model}\n"
        f"      api_base: {url}/v1\n      api_key: none\n"
        for url, model in zip(s.urls, s.models, strict=True)
    ]
    return "".join(
        [
            "model_list:\n",
            *workers,
            "router_settings:\n  routing_strategy: simple-shuffle\n  num_retries: 0\n",
            "litellm_settings:\n  telemetry: false\n  drop_params: true\n"
            "  request_timeout: 300\n",
            "general_settings:\n  disable_spend_logs: true\n",
        ]
    )
