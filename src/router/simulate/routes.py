"""Which route of a simulated worker answers what, and who may ask.

Owns the table of paths, the API key's reach and the turning of refusals into answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from .engine import EngineError
from .generate import Generator
from .operate import Operator, Outage
from .serve import Server
from .shapes import error
from .state import State
from .web import Refusal, answer_json, lost

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
#: Only these prefixes are guarded by the API key, as in vLLM.
_GUARDED = ("/v1", "/v2", "/inference", "/cohere")


class Routes:
    """Answers every request of one worker."""

    def __init__(self, state: State, outage: Callable[[Outage], None]) -> None:
        self._state = state
        generator = Generator(state)
        server = Server(state, generator)
        operator = Operator(state, outage)
        get: dict[str, Handler] = {
            "/health": operator.health,
            "/v1/models": operator.models,
            "/version": server.version,
            "/load": server.load,
            "/metrics": server.metrics,
            "/is_sleeping": operator.is_sleeping,
            "/is_paused": operator.is_paused,
            "/v1/realtime": server.realtime,
            "/simulate": operator.simulated,
        }
        post: dict[str, Handler] = {
            "/tokenize": server.tokenize,
            "/detokenize": server.detokenize,
            "/v1/load_lora_adapter": operator.load_lora,
            "/v1/unload_lora_adapter": operator.unload_lora,
            "/reset_prefix_cache": operator.reset_prefix_cache,
            "/sleep": operator.sleep,
            "/wake_up": operator.wake_up,
            "/pause": operator.pause,
            "/resume": operator.resume,
            "/simulate": operator.simulate,
        }
        engine: dict[str, Handler] = {
            "/v1/chat/completions": generator.chat,
            "/v1/completions": generator.completions,
            "/v1/responses": generator.responses,
            "/inference/v1/generate": generator.tokens,
            "/v1/embeddings": server.embeddings,
            "/v1/audio/transcriptions": server.transcriptions,
        }
        self._engine_paths = frozenset(engine)
        self._table: dict[str, dict[str, Handler]] = {}
        for method, routes in (("GET", get), ("POST", post), ("POST", engine)):
            for path, handler in routes.items():
                self._table.setdefault(path, {})[method] = handler

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await self._answer(request)
        except Refusal as refusal:
            response = answer_json(refusal.body, status=refusal.status)
        except EngineError as problem:
            body = error(problem.status, problem.type, problem.message)
            response = answer_json(body, status=problem.status)
        except ConnectionError:
            # The client left while it was being answered.
            await lost()
        if not response.prepared:
            response.headers["x-simulated-worker"] = self._state.name
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.path, request.method
        if not self._authorized(request):
            return answer_json({"error": "Unauthorized"}, status=401)
        methods = self._table.get(path)
        if methods is None:
            return answer_json({"detail": "Not Found"}, status=404)
        handler = methods.get(method)
        if handler is None:
            response = answer_json({"detail": "Method Not Allowed"}, status=405)
            response.headers["allow"] = ", ".join(methods)
            return response
        if path in self._engine_paths:
            self._state.requests += 1
        return await handler(request)

    def _authorized(self, request: web.BaseRequest) -> bool:
        key = self._state.api_key
        if key is None or request.method == "OPTIONS":
            return True
        if not request.path.startswith(_GUARDED):
            return True
        return request.headers.get("authorization") == f"Bearer {key}"
