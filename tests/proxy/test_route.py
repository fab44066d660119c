"""What a request asks for."""

from __future__ import annotations

import json

import pytest

from router.errors import BadRequest, InvalidJSON
from router.proxy.places import renamed
from router.proxy.wish import Wish, read_wish, wants_body
from tests.proxy.requests import JSON, request

SESSIONS = (b"x-session-id", b"x-user-id")
FORM = ("Content-Type", "multipart/form-data; boundary=XX")


def wish_of(body: bytes, *headers: tuple[str, str], target: str = "/v1/x") -> Wish:
    return read_wish(request(body, *headers, target=target), SESSIONS)


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"a"}', "a"),
        (b' {"x":1, "model" : "a" } ', "a"),
        (b'{"model":"a","model":"b"}', "b"),
        (b'{"mod\\u0065l":"a"}', "a"),
        (b'{"model":"caf\\u00e9"}', "café"),
        ('{"model":"café"}'.encode(), "café"),
        (b'{"messages":[{"content":"{\\"model\\":\\"evil\\"}"}],"model":"a"}', "a"),
        (b'{"messages":[{"model":"evil"}],"model":"a"}', "a"),
        (b'{"metadata":{"model":"evil"}}', None),
        (b'{"model":null}', None),
        (b'{"model":""}', None),
        (b"{}", None),
    ],
)
def test_the_model_is_the_last_one_at_the_top_of_the_object(
    body: bytes, model: str | None
) -> None:
    assert wish_of(body, JSON).model == model


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"model"',
        b'{"model":"a"',
        b'{"model":"a"}x',
        b'{"model":"a}',
        b"nonsense",
        b'{"a" 1}',
        b'{"a":}',
        b'{"a":1,}',
        b'{"model":"\xff"}',
    ],
)
def test_a_body_that_claims_json_and_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJSON):
        wish_of(body, JSON)


@pytest.mark.parametrize("value", [b"1", b"true", b"[]", b'{"a":1}'])
def test_a_model_that_is_no_string_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(BadRequest) as error:
        wish_of(b'{"model":' + value + b"}", JSON)
    assert error.value.param == "model"


@pytest.mark.parametrize(
    ("headers", "body", "session"),
    [
        ([("X-Session-ID", "h")], b'{"user":"u"}', b"h"),
        ([("X-User-ID", "second"), ("X-Session-ID", "first")], b"{}", b"first"),
        ([("X-Session-ID", "")], b'{"user":"u"}', b"u"),
        ([], b'{"user":"u","session_id":"s"}', b"s"),
        ([], b'{"user_id":"i","user":"u"}', b"u"),
        ([], b'{"user_id":"i"}', b"i"),
        ([], b'{"session_id":"s","session_params":{"session_id":"p"}}', b"p"),
        ([], b'{"session_params":{"x":1},"session_id":"s"}', b"s"),
        ([], b'{"session_params":"no","session_id":"s"}', b"s"),
        ([], b'{"session_id":7,"user":"u"}', b"u"),
        ([], b'{"messages":[{"content":"session_id"}]}', None),
        ([], b'{"messages":[{"session_id":"evil"}]}', None),
    ],
)
def test_the_session_is_the_first_header_then_the_first_field(
    headers: list[tuple[str, str]], body: bytes, session: bytes | None
) -> None:
    assert wish_of(body, JSON, *headers).session == session


def test_no_session_is_looked_for_without_a_policy_that_wants_one() -> None:
    wish = read_wish(request(b'{"user":"u"}', JSON, ("X-Session-ID", "h")), ())
    assert wish.session is None


def form(*parts: tuple[str, str]) -> bytes:
    disposition = "Content-Disposition: form-data; name="
    return b"".join(
        f'--XX\r\n{disposition}"{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in parts
    ) + (b"--XX--\r\n")


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (form(("model", "whisper")), "whisper"),
        (form(("file", "RIFF model"), ("model", "whisper")), "whisper"),
        (form(("file", 'name="model"\r\nno')), None),
        (form(("model", "")), None),
        (b"--XX\r\nnothing", None),
        (b"preamble\r\n" + form(("model", "w")), "w"),
    ],
)
def test_the_model_of_a_form_is_its_field(body: bytes, model: str | None) -> None:
    assert wish_of(body, FORM).model == model


def test_the_model_of_the_query_counts_without_a_body() -> None:
    wish = wish_of(b"", target="/v1/realtime?a=1&model=org%2Fm")
    assert (wish.model, wish.has_body) == ("org/m", False)


def test_json_that_does_not_claim_to_be_json_is_read_all_the_same() -> None:
    form_type = ("Content-Type", "application/x-www-form-urlencoded")
    assert wish_of(b'{"model":"a"}', form_type).model == "a"
    assert wish_of(b"{not json", form_type).model is None


def test_provider_and_rank_are_what_the_headers_say() -> None:
    wish = wish_of(
        b"{}", JSON, ("X-Router-Provider", "openai"), ("X-data-parallel-rank", "3")
    )
    assert (wish.provider, wish.rank) == ("openai", "3")


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([JSON], True),
        ([("Content-Type", "Application/JSON; charset=utf-8")], True),
        ([("Content-Type", "application/vnd.api+json")], True),
        ([FORM], True),
        ([("Content-Type", "application/octet-stream")], False),
        ([], False),
    ],
)
def test_only_bodies_that_can_name_a_model_are_held_whatever_their_size(
    headers: list[tuple[str, str]], wanted: bool
) -> None:
    assert wants_body(request(b"x" * 70_000, *headers).head) is wanted


def test_small_bodies_of_any_kind_are_held_so_that_they_can_be_sent_again() -> None:
    assert wants_body(request(b"x" * 65_536).head)


def test_an_alias_is_replaced_where_it_stands_and_nothing_else_changes() -> None:
    body = (
        b'{ "model" :"alias" ,  "x":1.50, "x":2, "t":"\\u00e9 \\"model\\":\\"alias\\""}'
    )
    asked = request(body, JSON)
    target, changed = renamed(asked, read_wish(asked, ()), 'org/"real"')
    assert target is None
    assert changed == body.replace(b'"alias"', b'"org/\\"real\\""', 1)
    assert json.loads(changed)["model"] == 'org/"real"'


def test_an_alias_in_a_form_is_replaced_as_text() -> None:
    body = form(("model", "first"), ("file", "alias"), ("model", "alias"), ("x", "y"))
    asked = request(body, FORM)
    wish = read_wish(asked, ())
    assert wish.model == "alias"
    target, changed = renamed(asked, wish, "org/réal")
    assert target is None
    assert changed == form(
        ("model", "first"), ("file", "alias"), ("model", "org/réal"), ("x", "y")
    )


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/x?model=alias", b"/x?model=org%2Fm"),
        ("/x?a=alias&model=al%69as&b=%20+", b"/x?a=alias&model=org%2Fm&b=%20+"),
        ("/x?model=other&%6dodel=alias&&", b"/x?model=other&%6dodel=org%2Fm&&"),
        ("/x?model=alias&model=", b"/x?model=org%2Fm&model="),
    ],
)
def test_an_alias_in_the_query_is_replaced_there(target: str, expected: bytes) -> None:
    asked = request(target=target)
    wish = read_wish(asked, ())
    assert wish.model == "alias"
    assert renamed(asked, wish, "org/m") == (expected, b"")
