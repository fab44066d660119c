"""The routers that the rig can measure. A new one is one more entry here."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.rig.configs import Setup, haproxy, litellm, nginx
from bench.rig.processes import LOAD_CPU, ROUTER_CPU

#: install_peers.sh fills it.
_PEERS = Path(os.environ.get("PEERS_DIR") or "~/.cache/peers").expanduser()
#: The router under test: of the environment that the rig runs in, if not said.
_OURS = os.environ.get("ROUTER_CMD") or f"{sys.executable} -m router"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """How a router is started, and what it offers of what is measured."""

    #: Name printed in the tables.
    title: str
    #: The command line, split as a shell would; empty: no router at all. Placeholders:
    #: {urls} (one argument a worker), {urls_csv}, {models_csv} (the model of each
    #: URL), {policy} (its own word), {port}, {mport}, {health_s}, {dir}, {cfg}.
    command: str = ""
    #: The scenario's policy -> this system's word for it; a policy that is missing is
    #: not offered, and its rows are skipped.
    policies: Mapping[str, str] = field(default_factory=dict)
    #: The text of its configuration file {cfg}.
    config: Callable[[Setup], str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: Path that answers 200 once it takes requests.
    ready: str = "/health"
    #: Path of a JSON list of workers with `is_healthy`; empty: it has none.
    workers: str = ""
    #: Session header that its sticky policy reads.
    key: str = ""
    #: Several models: whether it can, and the command if that is another one. With
    #: `register` the workers are not on the command line but sent to POST /workers.
    several_models: bool = False
    several_command: str = ""
    register: bool = False
    #: Fleets above this are skipped (0: none are).
    max_workers: int = 0
    #: An interpreter-bound router: it is given fewer long rows.
    slow: bool = False
    #: Seconds to wait for it to become ready.
    start_s: int = 60
    #: The cores that it may run on.
    cpus: tuple[int, ...] = (ROUTER_CPU,)

    @property
    def installed(self) -> bool:
        """Whether its program is there; no program is always there."""
        return (
            not self.command or shutil.which(shlex.split(self.command)[0]) is not None
        )

    def argv(self, setup: Setup) -> list[str]:
        """The command that starts it before this fleet."""
        several = setup.n_models > 1 and self.several_command
        values = {
            "policy": self.policies[setup.policy],
            "port": setup.port,
            "mport": setup.mport,
            "health_s": setup.health_s,
            "dir": setup.dir,
            "cfg": setup.cfg,
            "urls_csv": ",".join(setup.urls),
            "models_csv": ",".join(f"model-{model}" for model in setup.models),
        }
        argv: list[str] = []
        for word in shlex.split(several or self.command):
            argv += setup.urls if word == "{urls}" else [word.format(**values)]
        return argv


_RUST = (
    "--host 127.0.0.1 --port {port} --prometheus-host 127.0.0.1 "
    "--prometheus-port {mport} --policy {policy} --worker-startup-check-interval 1 "
    "--health-check-interval-secs {health_s} "
)
#: As vllm-router names them, whose scripts are to go on working.
_POLICIES = {"rr": "round_robin", "sticky": "consistent_hash", "cache": "cache_aware"}
_FLEETROUTER = System(
    title="fleetrouter",
    command=f"{_OURS} serve --host 127.0.0.1 --port {{port}} --policy {{policy}} "
    "--log-level warning --health-check-interval-secs {health_s} "
    "--worker-urls {urls}",
    policies=_POLICIES,
    workers="/workers",
    key="X-Session-ID",
    several_models=True,
)
_VLLM_ROUTER = f"{_PEERS}/vr/bin/vllm-router {_RUST} --log-level error "

SYSTEMS = {
    "direct": System(title="direct (no router)"),
    "fleetrouter": _FLEETROUTER,
    # Beside it the same load has the second core: that is what CPU per request is for.
    "fleetrouter-2": replace(
        _FLEETROUTER,
        title="fleetrouter, 2 processes",
        command=f"{_FLEETROUTER.command} --processes 2",
        cpus=(ROUTER_CPU, LOAD_CPU),
    ),
    "vllm-router": System(
        title="vllm-router 0.1.17",
        command=_VLLM_ROUTER + "--worker-urls {urls}",
        policies=_POLICIES,
        workers="/workers",
        key="X-Session-ID",
        several_models=True,
        several_command=_VLLM_ROUTER + "--enable-igw",
        register=True,
    ),
    "smg": System(
        title="smg 1.13.0",
        command=f"{_PEERS}/smg/bin/smg launch {_RUST} --log-level warn "
        "--disable-tokenizer-autoload --worker-urls {urls}",
        policies={
            "rr": "round_robin",
            "sticky": "consistent_hashing",
            "cache": "cache_aware",
        },
        workers="/workers",
        key="X-SMG-Routing-Key",
        several_models=True,
    ),
    # Several models need --enable-igw, which downloads a vocabulary at start.
    "sglang-router": System(
        title="sglang-router 0.3.2",
        command=f"{_PEERS}/sgl/bin/python -m sglang_router.launch_router {_RUST} "
        "--log-level error --worker-urls {urls}",
        policies={"rr": "round_robin", "sticky": "manual", "cache": "cache_aware"},
        env={"HF_HUB_OFFLINE": "1"},
        workers="/workers",
        key="X-SMG-Routing-Key",
        start_s=240,
    ),
    "nginx": System(
        title="nginx 1.22.1",
        command="/usr/sbin/nginx -c {cfg}",
        config=nginx,
        policies={"rr": "rr", "sticky": "sticky"},
        key="X-Session-ID",
    ),
    "haproxy": System(
        title="haproxy 2.6.12",
        command="/usr/sbin/haproxy -db -f {cfg}",
        config=haproxy,
        policies={"rr": "rr", "sticky": "sticky"},
        key="X-Session-ID",
        several_models=True,
    ),
    "pstack": System(
        title="production-stack (Python)",
        command=f"{_PEERS}/pstack/bin/vllm-router --host 127.0.0.1 --port {{port}} "
        "--service-discovery static --static-backends {urls_csv} "
        "--static-models {models_csv} --routing-logic {policy} "
        "--session-key x-session-id --engine-stats-interval {health_s} "
        "--log-level warning",
        policies={"rr": "roundrobin", "sticky": "session", "cache": "prefixaware"},
        key="x-session-id",
        several_models=True,
        slow=True,
        max_workers=512,
        start_s=90,
    ),
    "litellm": System(
        title="LiteLLM proxy 1.108.7",
        command=f"{_PEERS}/litellm/bin/litellm --config {{cfg}} --host 127.0.0.1 "
        "--port {port} --num_workers 1",
        config=litellm,
        policies={"rr": "rr"},
        env={
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_TELEMETRY": "False",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            "HF_HUB_OFFLINE": "1",
        },
        ready="/health/liveliness",
        several_models=True,
        slow=True,
        max_workers=512,
        start_s=120,
    ),
}
