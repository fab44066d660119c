"""What a simulated worker answers: vLLM's shapes, headers, refusals."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.simulate import SimulatedFleet, Switches

from .conftest import CHAT, events


async def test_the_model_list_has_vllms_shape(http: aiohttp.ClientSession) -> None:
    async with (
        SimulatedFleet(models=[("tiny", "tiny-2")], loras=["sql"]) as fleet,
        http.get(f"{fleet[0].url}/v1/models") as response,
    ):
        listed = await response.json()
    assert listed["object"] == "list"
    first, second, adapter = listed["data"]
    assert [first["id"], second["id"], adapter["id"]] == ["tiny", "tiny-2", "sql"]
    assert set(first) == {
        *("id", "object", "created", "owned_by", "root", "parent"),
        *("max_model_len", "permission"),
    }
    assert (first["object"], first["owned_by"]) == ("model", "vllm")
    assert (first["root"], first["parent"], first["max_model_len"]) == (
        "tiny",
        None,
        131072,
    )
    assert (adapter["root"], adapter["parent"], adapter["max_model_len"]) == (
        "/adapters/sql",
        "tiny",
        None,
    )
    assert first["permission"][0]["object"] == "model_permission"


async def test_one_model_by_id_is_not_a_route(http: aiohttp.ClientSession) -> None:
    async with (
        SimulatedFleet(models=["tiny"]) as fleet,
        http.get(f"{fleet[0].url}/v1/models/tiny") as response,
    ):
        assert response.status == 404
        assert await response.json() == {"detail": "Not Found"}


async def test_health_is_an_empty_200_and_takes_no_other_method(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet() as fleet:
        url = f"{fleet[0].url}/health"
        async with http.get(url) as response:
            assert (response.status, await response.read()) == (200, b"")
            assert response.headers["server"] == "uvicorn"
        for method in ("HEAD", "OPTIONS", "POST"):
            async with http.request(method, url) as response:
                assert response.status == 405


async def test_a_whole_chat_answer_carries_usage(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet(models=["tiny"], switches=Switches(tokens=3)) as fleet:
        url = f"{fleet[0].url}/v1/chat/completions"
        headers = {"x-request-id": "abc"}
        async with http.post(url, json=CHAT, headers=headers) as response:
            body = await response.json()
    assert (body["id"], body["object"]) == ("chatcmpl-abc", "chat.completion")
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"].split()) == 3
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["prompt_tokens"] == 2
    assert body["usage"]["completion_tokens"] == 3
    assert body["usage"]["total_tokens"] == 5


async def test_a_chat_stream_is_framed_as_vllm_frames_it(
    http: aiohttp.ClientSession,
) -> None:
    asked = CHAT | {"stream": True, "max_tokens": 3}
    asked["stream_options"] = {"include_usage": True}
    async with SimulatedFleet(models=["tiny"]) as fleet:
        url = f"{fleet[0].url}/v1/chat/completions"
        async with http.post(url, json=asked) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.headers["transfer-encoding"] == "chunked"
            got = events(await response.read())
    first, *pieces, usage, done = got
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [
        None,
        None,
        "length",
    ]
    assert [piece for piece in got[:-1] if "system_fingerprint" in piece] == pieces[-1:]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert done == "[DONE]"


async def test_a_stream_without_the_option_has_no_usage(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        url = f"{fleet[0].url}/v1/completions"
        asked = {"prompt": "hi", "stream": True, "max_tokens": 2}
        async with http.post(url, json=asked) as response:
            *pieces, done = events(await response.read())
    assert len(pieces) == 2
    assert all("usage" not in piece for piece in pieces)
    assert done == "[DONE]"


async def test_usage_can_come_with_every_chunk(http: aiohttp.ClientSession) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {"prompt": "hi", "stream": True, "max_tokens": 2, "stream_options": options}
    async with SimulatedFleet() as fleet:
        url = f"{fleet[0].url}/v1/completions"
        async with http.post(url, json=asked) as response:
            *pieces, _ = events(await response.read())
    counts = [piece["usage"]["completion_tokens"] for piece in pieces]
    assert counts == [1, 2, 2]


async def test_a_responses_stream_names_its_events(http: aiohttp.ClientSession) -> None:
    asked = {"input": "hi", "stream": True, "max_output_tokens": 2}
    async with SimulatedFleet() as fleet:
        url = f"{fleet[0].url}/v1/responses"
        async with http.post(url, json=asked) as response:
            body = await response.read()
    names = [
        line[7:] for line in body.decode().split("\n") if line.startswith("event:")
    ]
    assert names == [
        "response.created",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.incomplete",
    ]
    assert [event["type"] for event in events(body)] == names
    assert b"[DONE]" not in body


async def test_the_client_may_ask_for_more_tokens_than_the_model_would_say(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet() as fleet:
        url = f"{fleet[0].url}/v1/completions"
        asked = {"prompt": "hi", "max_tokens": 500, "ignore_eos": True}
        async with http.post(url, json=asked) as response:
            body = await response.json()
    assert body["usage"]["completion_tokens"] == 500
    assert body["choices"][0]["finish_reason"] == "length"


REFUSALS: list[tuple[str, str, dict[str, Any], int, dict[str, Any]]] = [
    (
        "an unknown model",
        "/v1/chat/completions",
        {"json": CHAT | {"model": "nope"}},
        404,
        {
            "message": "The model `nope` does not exist. Valid aliases: tiny.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        },
    ),
    (
        "a wrong content type",
        "/v1/chat/completions",
        {"data": b"{}", "headers": {"content-type": "text/plain"}},
        400,
        {"type": "Bad Request", "code": 400},
    ),
    (
        "bad JSON",
        "/v1/completions",
        {"data": b"{", "headers": {"content-type": "application/json"}},
        400,
        {"type": "Bad Request", "code": 400},
    ),
    (
        "no messages",
        "/v1/chat/completions",
        {"json": {"model": "tiny"}},
        400,
        {"type": "Bad Request", "code": 400},
    ),
    (
        "a length below one",
        "/v1/chat/completions",
        {"json": CHAT | {"max_tokens": -1}},
        400,
        {"type": "BadRequestError", "param": "max_tokens", "code": 400},
    ),
    (
        "a prompt that is too long",
        "/v1/completions",
        {"json": {"prompt": "x" * 131072}},
        400,
        {"type": "BadRequestError", "param": "input_tokens", "code": 400},
    ),
    (
        "a rank that is not there",
        "/v1/chat/completions",
        {"json": CHAT, "headers": {"x-data-parallel-rank": "7"}},
        400,
        {
            "type": "BadRequestError",
            "message": "data_parallel_rank 7 is out of range [0, 2).",
        },
    ),
    (
        "no file to transcribe",
        "/v1/audio/transcriptions",
        {"json": {}},
        400,
        {"type": "Bad Request", "code": 400},
    ),
]


@pytest.mark.parametrize(
    ("path", "asked", "status", "expected"),
    [row[1:] for row in REFUSALS],
    ids=[row[0] for row in REFUSALS],
)
async def test_a_refusal_has_vllms_status_and_body(
    http: aiohttp.ClientSession,
    path: str,
    asked: dict[str, Any],
    status: int,
    expected: dict[str, Any],
) -> None:
    async with (
        SimulatedFleet(models=["tiny"], dp_size=2) as fleet,
        http.post(fleet[0].url + path, **asked) as response,
    ):
        body = await response.json()
        assert response.status == status
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert expected.items() <= body["error"].items()


async def test_the_api_key_guards_the_versioned_paths_only(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(api_key="k") as fleet:
        url = fleet[0].url
        for path in ("/health", "/metrics", "/load", "/version"):
            async with http.get(url + path) as response:
                assert response.status == 200
        async with http.get(f"{url}/v1/models") as response:
            assert response.status == 401
            assert await response.json() == {"error": "Unauthorized"}
        key = {"authorization": "Bearer k"}
        async with http.get(f"{url}/v1/models", headers=key) as response:
            assert response.status == 200


async def test_a_rank_is_obeyed_and_counted_apart(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet(models=["tiny"], dp_size=2) as fleet:
        url = fleet[0].url
        headers = {"x-data-parallel-rank": "1"}
        asked = {"prompt": "hi", "max_tokens": 4}
        async with http.post(
            f"{url}/v1/completions", json=asked, headers=headers
        ) as response:
            assert response.headers["x-simulated-rank"] == "1"
        async with http.get(f"{url}/metrics") as response:
            page = await response.text()
    tokens = {
        sample.labels["engine"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "vllm:generation_tokens_total"
    }
    assert tokens == {"0": 0.0, "1": 4.0}


async def test_the_metrics_page_has_vllms_names_and_labels(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(models=["tiny"]) as fleet,
        http.get(f"{fleet[0].url}/metrics") as response,
    ):
        page = await response.text()
    found = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    both = {"engine", "model_name"}
    assert found["vllm:num_requests_running"] == both
    assert found["vllm:num_requests_waiting"] == both
    assert found["vllm:num_requests_waiting_by_reason"] == both | {"reason"}
    assert found["vllm:kv_cache_usage_perc"] == both
    assert found["vllm:engine_sleep_state"] == both | {"sleep_state"}
    assert found["vllm:prefix_cache_queries_total"] == both
    assert found["vllm:request_success_total"] == both | {"finished_reason"}
    assert found["vllm:time_to_first_token_seconds_bucket"] == both | {"le"}
    assert "vllm:lora_requests_info" not in found


async def test_tokens_go_in_and_come_out(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet() as fleet:
        url = fleet[0].url
        asked: dict[str, Any] = {"token_ids": [1, 2, 3]}
        asked["sampling_params"] = {"max_tokens": 5}
        async with http.post(f"{url}/inference/v1/generate", json=asked) as response:
            body = await response.json()
        assert len(body["choices"][0]["token_ids"]) == 5
        async with http.post(f"{url}/tokenize", json={"prompt": "né"}) as response:
            tokens = (await response.json())["tokens"]
        async with http.post(f"{url}/detokenize", json={"tokens": tokens}) as response:
            assert await response.json() == {"prompt": "né"}


async def test_an_embedding_is_the_same_for_the_same_input(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet() as fleet:
        asked = {"input": ["a", "b", "a"]}
        async with http.post(f"{fleet[0].url}/v1/embeddings", json=asked) as response:
            data = (await response.json())["data"]
    assert [item["index"] for item in data] == [0, 1, 2]
    assert data[0]["embedding"] == data[2]["embedding"] != data[1]["embedding"]


async def test_a_transcription_takes_multipart(http: aiohttp.ClientSession) -> None:
    form = aiohttp.FormData()
    form.add_field("file", b"\0\r\n--x" * 1000, filename="a.wav")
    form.add_field("model", "tiny")
    async with SimulatedFleet(models=["tiny"]) as fleet:
        url = f"{fleet[0].url}/v1/audio/transcriptions"
        async with http.post(url, data=form) as response:
            assert (await response.json())["text"] == "6000 bytes of speech"


async def test_the_realtime_socket_greets_and_echoes(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        url = f"{fleet[0].url}/v1/realtime?model=tiny"
        async with http.ws_connect(url) as socket:
            assert (await socket.receive_json())["type"] == "session.created"
            await socket.send_str("text")
            assert await socket.receive_str() == "text"
            await socket.send_bytes(b"\0\1")
            assert await socket.receive_bytes() == b"\0\1"


async def test_the_load_header_comes_to_those_who_ask(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        url = f"{fleet[0].url}/v1/chat/completions"
        headers = {"endpoint-load-metrics-format": "text"}
        async with http.post(url, json=CHAT, headers=headers) as response:
            assert response.headers["endpoint-load-metrics"].startswith(
                "TEXT named_metrics.num_requests_waiting=0.0"
            )
