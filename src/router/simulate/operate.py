"""The operator's routes: health, models, adapters, sleep, pause, and /simulate.

Owns what an operator can change in a worker over HTTP. The life of the worker's socket
is the worker's: this asks for an outage and is told nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec
from aiohttp import web

from .engine import Ended
from .shapes import error
from .state import State
from .switches import ModelList
from .web import (
    Refusal,
    answer,
    answer_json,
    answer_text,
    lost,
    malformed,
    read_body,
    read_json,
)


class OutageKind(StrEnum):
    """How a worker goes away."""

    #: SIGTERM: what runs ends with finish_reason "abort", then connections are refused.
    STOP = "stop"
    #: kill -9 of the whole server: connections are reset, then refused.
    CRASH = "crash"
    #: kill -9 of the engine: errors, /health 503 for a moment, then refused.
    ENGINE_DEATH = "engine_death"


class Outage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way to go away, and after how many seconds to be back (None: never)."""

    kind: OutageKind
    secs: float | None = None


class LoadLora(msgspec.Struct):
    lora_name: str = ""
    lora_path: str = ""
    load_inplace: bool = False


class UnloadLora(msgspec.Struct):
    lora_name: str = ""


class Operator:
    """The operator's routes of one worker."""

    def __init__(self, state: State, outage: Callable[[Outage], None]) -> None:
        """outage: begins one, soon, and returns at once."""
        self._state = state
        self._outage = outage

    async def health(self, request: web.BaseRequest) -> web.StreamResponse:
        dead = any(engine.dead for engine in self._state.engines)
        return answer(status=503 if dead or self._state.switches.unhealthy else 200)

    async def models(self, request: web.BaseRequest) -> web.StreamResponse:
        match self._state.switches.models:
            case ModelList.HANG:
                await lost()
            case ModelList.MISSING:
                return answer_json({"detail": "Not Found"}, status=404)
            case ModelList.UNREADABLE:
                return answer(b"<html>starting</html>", kind="text/html")
            case ModelList.EMPTY:
                return answer_json({"object": "list", "data": []})
            case ModelList.NORMAL:
                pass
        return answer_json({"object": "list", "data": self._state.cards()})

    # --- adapters -------------------------------------------------------------------

    async def load_lora(self, request: web.BaseRequest) -> web.StreamResponse:
        """A path whose last part is "missing" leads to no adapter."""
        wanted = await read_json(request, LoadLora)
        name, path = wanted.lora_name, wanted.lora_path
        if not name or not path:
            raise _bad_input("Both 'lora_name' and 'lora_path' must be provided.")
        if name in self._state.served:
            raise _bad_input(f"The name '{name}' is a served base model.")
        if name in self._state.loras and not wanted.load_inplace:
            raise _bad_input(
                f"The lora adapter '{name}' has already been loaded. If you want to "
                "load the adapter in place, set 'load_inplace' to True."
            )
        if path.rstrip("/").rpartition("/")[2] == "missing":
            message = f"Loading lora {name} failed: No adapter found for {path}"
            raise Refusal(404, error(404, "NotFoundError", message))
        self._state.loras[name] = path
        return answer_text(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload_lora(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, UnloadLora)
        name = wanted.lora_name
        if not name:
            raise _bad_input("'lora_name' needs to be provided to unload a LoRA.")
        if self._state.loras.pop(name, None) is None:
            message = f"The lora adapter '{name}' cannot be found."
            raise Refusal(404, error(404, "NotFoundError", message))
        self._state.used_loras.pop(name, None)
        return answer_text(f"Success: LoRA adapter '{name}' removed successfully.")

    # --- sleep and pause (vLLM's development mode) ----------------------------------

    async def reset_prefix_cache(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer()

    async def sleep(self, request: web.BaseRequest) -> web.StreamResponse:
        return self._set_asleep(True)

    async def wake_up(self, request: web.BaseRequest) -> web.StreamResponse:
        return self._set_asleep(False)

    def _set_asleep(self, asleep: bool) -> web.StreamResponse:
        for engine in self._state.engines:
            engine.asleep = asleep
            engine.wake_all()
        return answer()

    async def is_sleeping(self, request: web.BaseRequest) -> web.StreamResponse:
        asleep = any(engine.asleep for engine in self._state.engines)
        return answer_json({"is_sleeping": asleep})

    async def pause(self, request: web.BaseRequest) -> web.StreamResponse:
        mode = request.query.get("mode", "abort")
        if mode not in ("abort", "wait", "keep"):
            raise malformed(f"mode: '{mode}' is none of abort, wait, keep")
        self._set_paused(mode)
        if mode == "abort":
            for engine in self._state.engines:
                engine.end_all(Ended.ABORT)
        if mode == "wait":
            for engine in self._state.engines:
                await engine.emptied()
        return answer_json({"status": "paused"})

    async def resume(self, request: web.BaseRequest) -> web.StreamResponse:
        self._set_paused(None)
        return answer_json({"status": "resumed"})

    async def is_paused(self, request: web.BaseRequest) -> web.StreamResponse:
        paused = any(engine.paused for engine in self._state.engines)
        return answer_json({"is_paused": paused})

    def _set_paused(self, mode: str | None) -> None:
        for engine in self._state.engines:
            engine.paused = mode
            engine.wake_all()

    # --- the simulator's own route --------------------------------------------------

    async def simulated(self, request: web.BaseRequest) -> web.StreamResponse:
        """GET /simulate: the switches and what a test wants to know."""
        return answer_json(self._report())

    async def simulate(self, request: web.BaseRequest) -> web.StreamResponse:
        """POST /simulate: switches by name, `served` (model names), `outage`."""
        try:
            changes: dict[str, Any] = msgspec.json.decode(
                await read_body(request), type=dict[str, Any]
            )
            outage = msgspec.convert(changes.pop("outage", None), Outage | None)
            served = msgspec.convert(
                changes.pop("served", self._state.served), tuple[str, ...]
            )
            switches = self._state.switches.changed(changes)
        except msgspec.DecodeError as problem:
            raise malformed(str(problem)) from problem
        if not served:
            raise malformed("served: at least one model name")
        self._state.served = served
        self._state.switches = switches
        if outage:
            self._outage(outage)
        return answer_json(self._report())

    def _report(self) -> dict[str, object]:
        state = self._state
        return {
            **msgspec.structs.asdict(state.switches),
            "served": state.served,
            "loras": state.loras,
            "running": state.running,
            "waiting": state.waiting,
            "requests": state.requests,
            "left": sum(engine.left for engine in state.engines),
        }


def _bad_input(message: str) -> Refusal:
    return Refusal(400, error(400, "InvalidUserInput", message))
