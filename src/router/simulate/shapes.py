"""The JSON that vLLM answers with: model list, errors, answers whole and in pieces.

Values in, bytes out. Knows no request, no engine and no socket. Each *dialect* is one
route's way to say the same generation: whole, or as server-sent events.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

import msgspec

Json = dict[str, object]
dump = msgspec.json.encode
DONE = b"data: [DONE]\n\n"


def error(status: int, kind: str, message: str, param: str | None = None) -> Json:
    """vLLM's error body. kind: its `type`, as "NotFoundError"."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def event(data: object, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + dump(data) + b"\n\n"


def model_card(
    name: str, *, root: str, parent: str | None, max_model_len: int | None
) -> Json:
    """One item of GET /v1/models. `created` is the time of the call, as in vLLM."""
    now = int(time.time())
    return {
        "id": name,
        "object": "model",
        "created": now,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
        "permission": [
            {
                "id": f"modelperm-{uuid4().hex}",
                "object": "model_permission",
                "created": now,
                "allow_create_engine": False,
                "allow_sampling": True,
                "allow_logprobs": True,
                "allow_search_indices": False,
                "allow_view": True,
                "allow_fine_tuning": False,
                "organization": "*",
                "group": None,
                "is_blocking": False,
            }
        ],
    }


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and written so far."""

    prompt: int
    completion: int

    def json(self) -> Json:
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
        }


class Dialect(Protocol):
    """How one route says a generation."""

    def opening(self) -> bytes:
        """What a stream starts with, at the first token."""

    def piece(self, text: str, finish: str | None, usage: Usage | None) -> bytes:
        """One piece; `finish` on the last only, `usage` where it was asked for."""

    def closing(self, text: str, finish: str, usage: Usage, *, include: bool) -> bytes:
        """What a stream ends with. include: whether the client asked for usage."""

    def whole(self, text: str, finish: str, usage: Usage) -> bytes:
        """The answer that is not a stream."""


@dataclass(frozen=True, slots=True)
class _Head:
    """What every chunk of an answer repeats."""

    request_id: str
    model: str
    created: int

    def json(self, kind: str, **rest: object) -> Json:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            **rest,
        }


class Chat(_Head):
    """/v1/chat/completions."""

    __slots__ = ()

    def opening(self) -> bytes:
        choice = _choice(delta={"role": "assistant", "content": ""})
        return self._chunk([choice], None)

    def piece(self, text: str, finish: str | None, usage: Usage | None) -> bytes:
        choice = _choice(delta={"content": text}, finish=finish)
        if not finish:
            return self._chunk([choice], usage)
        return self._chunk([choice], usage, system_fingerprint="vllm-simulated")

    def closing(self, text: str, finish: str, usage: Usage, *, include: bool) -> bytes:
        return (self._chunk([], usage) if include else b"") + DONE

    def _chunk(self, choices: list[Json], usage: Usage | None, **rest: object) -> bytes:
        if usage:
            rest["usage"] = usage.json()
        return event(self.json("chat.completion.chunk", choices=choices, **rest))

    def whole(self, text: str, finish: str, usage: Usage) -> bytes:
        message: Json = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "tool_calls": [],
            "reasoning": None,
        }
        choice = _choice(message=message, finish=finish) | {"stop_reason": None}
        return dump(self.json("chat.completion", choices=[choice], **_whole_end(usage)))


class Completion(_Head):
    """/v1/completions."""

    __slots__ = ()

    def opening(self) -> bytes:
        return b""

    def piece(self, text: str, finish: str | None, usage: Usage | None) -> bytes:
        choice = _choice(text=text, finish=finish) | {"stop_reason": None}
        rest: Json = {"usage": usage.json()} if usage else {}
        return event(self.json("text_completion", choices=[choice], **rest))

    def closing(self, text: str, finish: str, usage: Usage, *, include: bool) -> bytes:
        last = self.json("text_completion", choices=[], usage=usage.json())
        return (event(last) if include else b"") + DONE

    def whole(self, text: str, finish: str, usage: Usage) -> bytes:
        choice = _choice(text=text, finish=finish) | {
            "stop_reason": None,
            "prompt_logprobs": None,
        }
        return dump(self.json("text_completion", choices=[choice], **_whole_end(usage)))


class Responses(_Head):
    """/v1/responses: events with names, no [DONE]."""

    __slots__ = ()

    def opening(self) -> bytes:
        return self._event("response.created", response=self._response("in_progress"))

    def piece(self, text: str, finish: str | None, usage: Usage | None) -> bytes:
        return self._event(
            "response.output_text.delta",
            item_id=f"msg_{self.request_id}",
            output_index=0,
            content_index=0,
            delta=text,
        )

    def closing(self, text: str, finish: str, usage: Usage, *, include: bool) -> bytes:
        response = self._finished(text, finish, usage)
        return self._event(f"response.{response['status']}", response=response)

    def whole(self, text: str, finish: str, usage: Usage) -> bytes:
        return dump(self._finished(text, finish, usage))

    def _event(self, kind: str, **rest: object) -> bytes:
        return event({"type": kind, **rest}, name=kind)

    def _finished(self, text: str, finish: str, usage: Usage) -> Json:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {
            "id": f"msg_{self.request_id}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        status = "completed" if finish == "stop" else "incomplete"
        return self._response(
            status,
            output=[message],
            usage={
                "input_tokens": usage.prompt,
                "output_tokens": usage.completion,
                "total_tokens": usage.prompt + usage.completion,
            },
        )

    def _response(self, status: str, **rest: object) -> Json:
        return {
            "id": self.request_id,
            "object": "response",
            "created_at": self.created,
            "model": self.model,
            "status": status,
            "output": [],
            **rest,
        }


def _choice(*, finish: str | None = None, **said: object) -> Json:
    return {"index": 0, **said, "logprobs": None, "finish_reason": finish}


def _whole_end(usage: Usage) -> Mapping[str, object]:
    return {
        "service_tier": None,
        "system_fingerprint": "vllm-simulated",
        "usage": usage.json() | {"prompt_tokens_details": None},
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }
