"""The other OpenAI routes: embeddings, tokens, speech, the realtime socket, the lists.

Owns no state; asks the worker's state and its generator.
"""

from __future__ import annotations

import time
from uuid import uuid4
from zlib import crc32

import msgspec
from aiohttp import BodyPartReader, WSMsgType, web

from . import metrics, text
from .generate import Generator
from .state import State
from .web import answer, answer_json, malformed, read_json

_DIMENSIONS = 8


class EmbeddingRequest(msgspec.Struct):
    input: str | list[object]
    model: str | None = None


class TokenizeRequest(msgspec.Struct):
    model: str | None = None
    prompt: str | None = None
    messages: list[object] | None = None


class DetokenizeRequest(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


class Server:
    """The routes of one worker that are neither generation nor an operator's."""

    def __init__(self, state: State, generator: Generator) -> None:
        self._state = state
        self._generator = generator

    async def version(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer_json({"version": "0.32.0"})

    async def load(self, request: web.BaseRequest) -> web.StreamResponse:
        load = self._state.running + self._state.waiting
        return answer_json({"server_load": load})

    async def metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        state = self._state
        page = metrics.render(state.served[0], state.engines, state.used_loras)
        return answer(page, kind="text/plain; version=0.0.4; charset=utf-8")

    async def embeddings(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, EmbeddingRequest)
        model = self._generator.resolve(wanted.model)
        inputs = [wanted.input] if isinstance(wanted.input, str) else wanted.input
        tokens = text.count_tokens(inputs)
        await self._through_engine(request, tokens)
        data = [
            {"index": index, "object": "embedding", "embedding": _embed(value)}
            for index, value in enumerate(inputs)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return answer_json(
            {
                "id": f"embd-{uuid4().hex}",
                "object": "list",
                "created": int(time.time()),
                "model": model,
                "data": data,
                "usage": usage | {"completion_tokens": 0},
            }
        )

    async def _through_engine(self, request: web.BaseRequest, tokens: int) -> None:
        engine = self._state.engines[self._generator.rank(request)]
        async with engine.admit(tokens) as generation:
            await generation.complete(1)

    async def tokenize(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, TokenizeRequest)
        self._generator.resolve(wanted.model)
        if wanted.prompt is not None:
            tokens = text.tokenize(wanted.prompt)
        elif wanted.messages is not None:
            tokens = text.tokenize(text.flatten(wanted.messages))
        else:
            raise malformed("prompt: Field required")
        return answer_json(
            {
                "count": len(tokens),
                "max_model_len": self._state.max_model_len,
                "tokens": tokens,
                "token_strs": None,
            }
        )

    async def detokenize(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, DetokenizeRequest)
        self._generator.resolve(wanted.model)
        try:
            prompt = text.detokenize(wanted.tokens)
        except ValueError as problem:
            raise malformed(str(problem)) from problem
        return answer_json({"prompt": prompt})

    async def transcriptions(self, request: web.BaseRequest) -> web.StreamResponse:
        """Multipart in; the text is the file's size, so that a lost byte shows."""
        kind = request.headers.get("content-type", "")
        if not kind.startswith("multipart/form-data"):
            raise malformed("file: Field required")
        fields: dict[str, bytes] = {}
        async for part in await request.multipart():
            if isinstance(part, BodyPartReader):
                fields[part.name or ""] = bytes(await part.read())
        if "file" not in fields:
            raise malformed("file: Field required")
        self._generator.resolve(fields.get("model", b"").decode())
        size = len(fields["file"])
        await self._through_engine(request, size)
        return answer_json(
            {
                "text": f"{size} bytes of speech",
                "usage": {"type": "duration", "seconds": 1 + size // 32000},
            }
        )

    async def realtime(self, request: web.BaseRequest) -> web.StreamResponse:
        """Greets as vLLM, then echoes every message."""
        if request.headers.get("upgrade", "").lower() != "websocket":
            return answer_json({"detail": "Not Found"}, status=404)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        created = {"type": "session.created", "id": f"sess-{uuid4().hex}"}
        await socket.send_json({**created, "created": int(time.time())})
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket


def _embed(value: object) -> list[float]:
    """A vector that is the same for the same input, and rarely for another."""
    seed = crc32(repr(value).encode())
    return [((seed >> (4 * i)) & 15) / 15 for i in range(_DIMENSIONS)]
