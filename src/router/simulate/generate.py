"""The routes that generate: chat, completions, responses, tokens in and out.

Owns how a request becomes a generation and how that is told, whole or as a stream.
Leaving is cancellation: a client that goes away cancels the handler, which gives the
seat back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from uuid import uuid4

import msgspec
from aiohttp import web

from . import text
from .engine import Ended, Engine, EngineDead, EngineError, Generation
from .shapes import (
    DONE,
    Chat,
    Completion,
    Dialect,
    Responses,
    Usage,
    dump,
    error,
    event,
)
from .state import State
from .web import (
    Refusal,
    answer,
    answer_json,
    bad_request,
    lost,
    malformed,
    read_json,
    reset,
)


class StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerateRequest(msgspec.Struct):
    """The fields that the simulator looks at, of all its generating routes."""

    model: str | None = None
    messages: list[object] | None = None
    prompt: str | list[object] | None = None
    input: str | list[object] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False

    def limit(self) -> tuple[str, int] | None:
        """The length the client allows, and the field that says so."""
        for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
            value = getattr(self, name)
            if value is not None:
                return name, value
        return None


class SamplingParams(msgspec.Struct):
    max_tokens: int = 16
    ignore_eos: bool = False


class TokensRequest(msgspec.Struct):
    """/inference/v1/generate: token ids in, token ids out."""

    token_ids: list[int]
    sampling_params: SamplingParams = msgspec.field(default_factory=SamplingParams)
    model: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request comes down to."""

    model: str
    rank: int
    prompt_tokens: int
    count: int
    finish: str


class Generator:
    """The generating routes of one worker."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def chat(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, GenerateRequest)
        if not wanted.messages:
            raise malformed("messages: Field required")
        plan = self._plan(request, wanted, wanted.messages)
        head = Chat(_request_id(request, "chatcmpl-"), plan.model, int(time.time()))
        return await self._run(request, wanted, plan, head)

    async def completions(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, GenerateRequest)
        if wanted.prompt is None:
            raise malformed("prompt: Field required")
        plan = self._plan(request, wanted, wanted.prompt)
        head = Completion(_request_id(request, "cmpl-"), plan.model, int(time.time()))
        return await self._run(request, wanted, plan, head)

    async def responses(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, GenerateRequest)
        if wanted.input is None:
            raise malformed("input: Field required")
        plan = self._plan(request, wanted, wanted.input)
        head = Responses(_request_id(request, "resp_"), plan.model, int(time.time()))
        return await self._run(request, wanted, plan, head)

    async def tokens(self, request: web.BaseRequest) -> web.StreamResponse:
        wanted = await read_json(request, TokensRequest)
        like = GenerateRequest(
            model=wanted.model,
            max_tokens=wanted.sampling_params.max_tokens,
            ignore_eos=wanted.sampling_params.ignore_eos,
        )
        plan = self._plan(request, like, wanted.token_ids)
        generation = await self._complete(plan)
        said = _say(plan.model, generation.completion_tokens)
        choice = {
            "index": 0,
            "logprobs": None,
            "finish_reason": _finish(generation, plan),
            "token_ids": text.tokenize(said)[: generation.completion_tokens],
        }
        return answer_json(
            {
                "request_id": wanted.request_id or uuid4().hex,
                "choices": [choice],
                "prompt_logprobs": None,
                "kv_transfer_params": None,
            }
        )

    # --- from a request to a plan ---------------------------------------------------

    def _plan(
        self, request: web.BaseRequest, wanted: GenerateRequest, prompt: object
    ) -> Plan:
        """Raises `Refusal` in the order vLLM looks: model, rank, lengths."""
        model = self.resolve(wanted.model)
        rank = self.rank(request)
        room = self._state.max_model_len
        prompt_tokens = text.count_tokens(prompt)
        limit = wanted.limit()
        if limit and limit[1] < 1:
            raise bad_request(
                f"{limit[0]} must be at least 1, got {limit[1]}.", limit[0]
            )
        most = limit[1] if limit else max(1, room - prompt_tokens)
        if prompt_tokens + (limit[1] if limit else 1) > room:
            raise bad_request(
                f"This model's maximum context length is {room} tokens. However, you "
                f"requested {most} output tokens and your prompt contains "
                f"{prompt_tokens} input tokens.",
                "input_tokens",
            )
        natural = max(self._state.switches.tokens, wanted.min_tokens)
        if wanted.ignore_eos or natural > most:
            return Plan(model, rank, prompt_tokens, most, "length")
        return Plan(model, rank, prompt_tokens, natural, "stop")

    def resolve(self, model: str | None) -> str:
        """The model a request is for. Raises `Refusal` (404) if it is not here."""
        if not model:
            model = self._state.served[0]
        if not self._state.knows(model):
            aliases = ", ".join(self._state.served)
            message = f"The model `{model}` does not exist. Valid aliases: {aliases}."
            raise Refusal(404, error(404, "NotFoundError", message, "model"))
        if model in self._state.loras:
            self._state.used_loras[model] = self._state.loras[model]
        return model

    def rank(self, request: web.BaseRequest) -> int:
        """The rank the client asks for, else the least busy. Raises `Refusal`."""
        asked = request.headers.get("x-data-parallel-rank", "")
        try:
            rank = int(asked)
        except ValueError:
            return self._state.least_busy_rank()
        size = len(self._state.engines)
        if not 0 <= rank < size:
            raise bad_request(f"data_parallel_rank {rank} is out of range [0, {size}).")
        return rank

    # --- from a plan to an answer ---------------------------------------------------

    def _engine(self, plan: Plan) -> Engine:
        return self._state.engines[plan.rank]

    async def _complete(self, plan: Plan) -> Generation:
        engine = self._engine(plan)
        async with engine.admit(plan.prompt_tokens) as generation:
            await generation.complete(plan.count)
        engine.finished[_finish(generation, plan)] += 1
        return generation

    async def _run(
        self,
        request: web.BaseRequest,
        wanted: GenerateRequest,
        plan: Plan,
        dialect: Dialect,
    ) -> web.StreamResponse:
        if wanted.stream:
            options = wanted.stream_options or StreamOptions()
            return await self._stream(request, options, plan, dialect)
        generation = await self._complete(plan)
        usage = Usage(plan.prompt_tokens, generation.completion_tokens)
        said = _say(plan.model, generation.completion_tokens)
        response = answer(dialect.whole(said, _finish(generation, plan), usage))
        response.headers.update(self._load_report(request, plan))
        response.headers["x-simulated-rank"] = str(plan.rank)
        return response

    async def _stream(
        self,
        request: web.BaseRequest,
        options: StreamOptions,
        plan: Plan,
        dialect: Dialect,
    ) -> web.StreamResponse:
        """The head goes out before the first token, as vLLM sends it.

        A refusal known at once is still an error status; a later one is an event.
        """
        self._engine(plan).check()
        response = web.StreamResponse(
            headers={
                "server": "uvicorn",
                "vary": "Origin",
                "content-type": "text/event-stream; charset=utf-8",
                "x-simulated-worker": self._state.name,
                "x-simulated-rank": str(plan.rank),
            }
        )
        await response.prepare(request)
        try:
            await self._send_events(request, response, options, plan, dialect)
        except EngineError as problem:
            body = error(problem.status, problem.type, problem.message)
            await response.write(event(body) + DONE)
        await response.write_eof()
        return response

    async def _send_events(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        options: StreamOptions,
        plan: Plan,
        dialect: Dialect,
    ) -> None:
        engine = self._engine(plan)
        async with engine.admit(plan.prompt_tokens) as generation:
            said = text.pieces(plan.model)
            for left in range(plan.count - 1, -1, -1):
                if not await generation.token():
                    break
                done = generation.completion_tokens
                usage = Usage(plan.prompt_tokens, done)
                opening = dialect.opening() if done == 1 else b""
                chunk = dialect.piece(
                    next(said),
                    None if left else plan.finish,
                    usage if options.continuous_usage_stats else None,
                )
                await response.write(opening + chunk)
                if done == self._state.switches.reset_after_tokens:
                    reset(request.transport)
                    await lost()
            finish = _finish(generation, plan)
            usage = Usage(plan.prompt_tokens, generation.completion_tokens)
            if generation.ended:
                await response.write(dialect.piece("", finish, None))
        engine.finished[finish] += 1
        said_in_all = _say(plan.model, generation.completion_tokens)
        include = options.include_usage
        await response.write(
            dialect.closing(said_in_all, finish, usage, include=include)
        )

    def _load_report(self, request: web.BaseRequest, plan: Plan) -> dict[str, str]:
        """The ORCA header, for the clients that ask for it."""
        form = request.headers.get("endpoint-load-metrics-format", "").upper()
        engine = self._engine(plan)
        named = {
            "num_requests_waiting": float(len(engine.queue)),
            "kv_cache_usage_perc": engine.kv_tokens / engine.KV_CAPACITY,
        }
        if form == "JSON":
            told = dump({"named_metrics": named}).decode()
        elif form == "TEXT":
            told = ", ".join(f"named_metrics.{k}={v}" for k, v in named.items())
        else:
            return {}
        return {"endpoint-load-metrics": f"{form} {told}"}


def _finish(generation: Generation, plan: Plan) -> str:
    """finish_reason. Raises `EngineError` if the engine died."""
    if generation.ended is Ended.DEATH:
        raise EngineDead
    return "abort" if generation.ended else plan.finish


def _say(model: str, count: int) -> str:
    return "".join(islice(text.pieces(model), count))


def _request_id(request: web.BaseRequest, prefix: str) -> str:
    return prefix + (request.headers.get("x-request-id") or uuid4().hex)
