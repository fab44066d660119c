"""What a client sees through the router is what the server sends."""

from __future__ import annotations

import asyncio
import collections

import openai
import pytest

from tests.real.conftest import Fleet, Note
from tests.real.servers import Router, serve, until
from tests.real.traffic import IGNORE_EOS, chat, chats, client

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


async def streamed(url: str, tokens: int) -> tuple[str, str | None, int]:
    """(text, finish reason, tokens by the usage chunk) of a greedy stream."""
    text, reason, counted = "", None, 0
    async with client(url) as requests:
        stream = await requests.completions.create(
            model="tiny",
            prompt="Once upon a time",
            temperature=0.0,
            max_tokens=tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=IGNORE_EOS,
        )
        async for chunk in stream:
            for choice in chunk.choices:
                text += choice.text
                reason = choice.finish_reason or reason
            counted = chunk.usage.completion_tokens if chunk.usage else counted
    return text, reason, counted


async def lists(router: Router, model: str) -> bool:
    return model in await router.models()


async def forgot(router: Router, model: str) -> bool:
    return model not in await router.models()


async def idle(router: Router, fleet: Fleet) -> bool:
    """Neither the router nor an engine has a request left."""
    servers = (fleet.first, fleet.second)
    engines = [await server.running_requests() for server in servers]
    return await router.load() == 0 and sum(engines) == 0


async def generated(fleet: Fleet) -> float:
    """Tokens that both made since their start."""
    servers = (fleet.first, fleet.second)
    return sum([await server.generated_tokens() for server in servers])


async def test_a_chat_is_the_servers_own_and_both_servers_are_used(
    fleet: Fleet, note: Note
) -> None:
    await fleet.ensure_ready()
    async with client(fleet.first.url) as direct:
        expected = await chat(direct)
    async with (
        serve(*fleet.flags()) as router,
        client(router.url) as requests,
    ):
        await fleet.joined(router)
        outcomes = await chats(requests, 40)
    assert {(o.error, o.text) for o in outcomes} == {("", expected.text)}
    counts = collections.Counter(o.worker for o in outcomes)
    assert len(counts) == 2
    note(f"chat: 40 of 40 as the server's own, shared {sorted(counts.values())}")


async def test_a_stream_is_the_servers_own_to_its_usage_chunk(
    fleet: Fleet, note: Note
) -> None:
    await fleet.ensure_ready()
    expected = await streamed(fleet.first.url, 200)
    assert expected[1:] == ("length", 200)
    async with serve(*fleet.flags()) as router:
        await fleet.joined(router)
        seen = await asyncio.gather(*(streamed(router.url, 200) for _ in range(8)))
    assert set(seen) == {expected}
    note("streams: 8 of 8 with 200 tokens, text, finish reason and usage as direct")


async def test_an_error_of_the_server_reaches_the_client_unchanged(
    fleet: Fleet, note: Note
) -> None:
    await fleet.ensure_ready()
    async with serve(*fleet.flags()) as router:
        await fleet.joined(router)
        bodies = []
        for url in (fleet.first.url, router.url):
            async with client(url) as requests:
                with pytest.raises(openai.BadRequestError) as caught:
                    await requests.completions.create(
                        model="tiny", prompt="Hi", max_tokens=-1
                    )
                bodies.append(caught.value.body)
        async with client(router.url) as requests:
            with pytest.raises(openai.NotFoundError) as unknown:
                await requests.completions.create(model="nope", prompt="Hi")
    assert bodies[0] == bodies[1]
    assert unknown.value.code == "model_not_found"
    note("errors: 400 as the server's own; an unknown model is 404 model_not_found")


async def test_an_adapter_is_asked_only_of_the_server_that_holds_it(
    fleet: Fleet, note: Note
) -> None:
    await fleet.ensure_ready()
    async with (
        serve(*fleet.flags(), "--health-check-interval-secs", "1") as router,
        client(router.url) as requests,
    ):
        await fleet.joined(router)
        await fleet.second.load_adapter(fleet.adapter)
        try:
            await until(lambda: lists(router, "sql"))
            assert (await router.models())["sql"]["parent"] == "tiny"
            async with client(fleet.second.url) as direct:
                expected = await chat(direct, "sql")
            outcomes = await chats(requests, 40, model="sql")
            base = await chats(requests, 40)
            holder = await router.id_of(fleet.second)
        finally:
            await fleet.second.unload_adapter("sql")
        await until(lambda: forgot(router, "sql"))
        gone = await chat(requests, "sql")
    assert {(o.error, o.text, o.worker) for o in outcomes} == {
        ("", expected.text, holder)
    }
    assert expected.text not in {o.text for o in base}
    assert len({o.worker for o in base}) == 2
    assert gone.error == "model_not_found"
    note("LoRA on one server of two: 40 of 40 by that one; its base model by both")


async def test_a_client_that_leaves_ends_the_generation(
    fleet: Fleet, note: Note
) -> None:
    await fleet.ensure_ready()
    asked, before = 12000, await generated(fleet)
    async with serve(*fleet.flags()) as router:
        await fleet.joined(router)
        async with client(router.url) as requests:
            stream = await requests.completions.create(
                model="tiny",
                prompt="Once upon a time",
                max_tokens=asked,
                stream=True,
                extra_body=IGNORE_EOS,
            )
            for _ in range(5):
                await anext(stream)
            await stream.close()
        await until(lambda: idle(router, fleet))
    tokens = await generated(fleet) - before
    assert 5 <= tokens < asked
    note(f"client gone after 5 chunks: {tokens:.0f} of {asked} tokens were generated")
