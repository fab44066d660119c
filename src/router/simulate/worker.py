"""One simulated worker: its port and its life, from refused to up to gone.

Owns the socket; what is answered on it is for the routes. The port stays the worker's
for its whole life: while it is down the port is bound and not listening, so that
connections are refused, as with a vLLM that still loads its model.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Mapping, Sequence

from aiohttp import web

from .engine import Ended
from .operate import Outage, OutageKind
from .routes import Routes
from .state import State
from .switches import Switches
from .web import reset

_MAX_HEAD = 4 << 20
#: How long /health says 503 between the engine's death and the process' exit.
_DEATH_SECS = 0.1


class SimulatedWorker:
    """A vLLM server that is not one. Made stopped; `start` makes it answer."""

    def __init__(
        self,
        *served: str,
        host: str = "127.0.0.1",
        port: int = 0,
        loras: Mapping[str, str] | Sequence[str] = (),
        dp_size: int = 1,
        max_num_seqs: int = 256,
        max_num_queued_reqs: int = 0,
        max_model_len: int = 131072,
        api_key: str | None = None,
        keep_alive_secs: float = 5.0,
        switches: Switches | None = None,
        seed: int = 0,
    ) -> None:
        """Binds the port (0: a free one) without listening on it.

        served: names of the base model. loras: adapters loaded at every start, names
        or name to path. max_num_queued_reqs 0: no limit. Raises OSError if the port is
        taken, ValueError for a size below 1.
        """
        if not isinstance(loras, Mapping):
            loras = {name: f"/adapters/{name}" for name in loras}
        self.state = State(
            served or ("simulated",),
            loras=loras,
            dp_size=dp_size,
            max_num_seqs=max_num_seqs,
            max_num_queued_reqs=max_num_queued_reqs,
            max_model_len=max_model_len,
            api_key=api_key,
            switches=switches or Switches(),
            seed=seed,
        )
        self.host = host
        self._socket: socket.socket | None = bind(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._keep_alive_secs = keep_alive_secs
        self.state.name = str(self.port)
        self._routes = Routes(self.state, self.begin)
        self._web: web.Server | None = None
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def up(self) -> bool:
        """Whether it takes connections."""
        return self._listening is not None

    # --- switches -------------------------------------------------------------------

    def switch(self, **changes: object) -> None:
        """Throws switches by name (see `Switches`). Raises ValueError for a bad one."""
        self.state.switches = self.state.switches.changed(changes)

    def serve(self, *served: str) -> None:
        """Changes the names of the base model from now on."""
        if not served:
            raise ValueError("a worker serves at least one model")
        self.state.served = served

    # --- life -----------------------------------------------------------------------

    async def start(self) -> None:
        """Begins to answer, as a fresh process: counts, engines and adapters anew."""
        if self._listening is not None:
            return
        self.state.boot()
        self._web = web.Server(
            self._routes.handle,
            handler_cancellation=True,
            keepalive_timeout=self._keep_alive_secs,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_HEAD,
            max_field_size=_MAX_HEAD,
            max_headers=256,
        )
        bound = self._socket or await self._bind_again()
        self._socket = None
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._web, sock=bound, backlog=2048)

    def start_after(self, seconds: float) -> None:
        """Starts by itself after `seconds`; connections are refused until then."""

        async def later() -> None:
            await asyncio.sleep(seconds)
            await self.start()

        self._spawn(later())

    async def stop(self) -> None:
        """As SIGTERM: what runs ends with finish_reason "abort"; then refused."""
        server = self._refuse()
        if server is not None:
            for engine in self.state.engines:
                engine.end_all(Ended.ABORT)
            await _close_connections(server)
        await self._hold_port()

    async def crash(self) -> None:
        """As kill -9: every connection is reset; then refused."""
        server = self._refuse()
        if server is not None:
            for connection in server.connections:
                reset(connection.transport)
            await _close_connections(server)
        await self._hold_port()

    async def kill_engine(self) -> None:
        """As kill -9 of the engine: errors in what runs, /health 503, then refused."""
        for engine in self.state.engines:
            engine.dead = True
            engine.end_all(Ended.DEATH)
        await asyncio.sleep(_DEATH_SECS)
        await self.stop()

    async def close(self) -> None:
        """Stops for good and gives the port back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.stop()
        self.release()

    def release(self) -> None:
        """Gives the port of a worker that is not up back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def begin(self, outage: Outage) -> None:
        """Begins an outage soon, and ends it by itself if it has an end."""

        async def happen() -> None:
            # After the answer to whoever asked for it over this very worker.
            await asyncio.sleep(0.02)
            match outage.kind:
                case OutageKind.STOP:
                    await self.stop()
                case OutageKind.CRASH:
                    await self.crash()
                case OutageKind.ENGINE_DEATH:
                    await self.kill_engine()
            if outage.secs is not None:
                await asyncio.sleep(outage.secs)
                await self.start()

        self._spawn(happen())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self) -> web.Server | None:
        """Stops listening; gives the server whose connections are still open."""
        server, self._web = self._web, None
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        return server

    async def _hold_port(self) -> None:
        if self._socket is None:
            self._socket = await self._bind_again()

    async def _bind_again(self) -> socket.socket:
        """The loop closes a listening socket a little after it is told to."""
        for _ in range(100):
            try:
                return bind(self.host, self.port)
            except OSError:
                await asyncio.sleep(0.005)
        return bind(self.host, self.port)


async def _close_connections(server: web.Server) -> None:
    """Lets running handlers end within a second, then ends them."""
    server.pre_shutdown()
    await server.shutdown(1.0)


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the port and does not listen. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
