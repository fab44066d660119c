"""Members of a JSON object are found where `json` finds them, without parsing it."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.http1.scan import members

NAMES = (b"model", b"user", b"m\\", b"")


def values(body: bytes, names: tuple[bytes, ...] = NAMES) -> list[object]:
    """What stands where the scan says, read by `json`; Ellipsis: it says nowhere."""
    return [
        json.loads(body[place[0] : place[1]]) if place else ...
        for place in members(body, names)
    ]


def expected(body: bytes, names: tuple[bytes, ...] = NAMES) -> list[object]:
    found = json.loads(body)
    return [found.get(name.decode(), ...) for name in names]


# --- random documents ---------------------------------------------------------------


def _escaped(text: str, choices: list[int]) -> str:
    """A JSON string; which characters are escaped, and how, is drawn."""
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f"}
    short |= {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    out = []
    for at, character in enumerate(text):
        choice = choices[at % len(choices)] if choices else 0
        must = character in '"\\' or character < " "
        if choice == 1 and ord(character) < 0x10000:
            out.append(f"\\u{ord(character):04x}")
        elif choice == 2 and ord(character) < 0x10000:
            out.append(f"\\u{ord(character):04X}")
        elif character in short and (must or choice == 3):
            out.append(short[character])
        elif must:
            out.append(f"\\u{ord(character):04x}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'


texts = st.one_of(
    st.sampled_from(["model", "user", "m\\", "", "mode", "models", "\u0000model"]),
    st.sampled_from(['"model":"x"', '{"model": 1}', '\\"', "\\\\", "}]", "é\u2028😀"]),
    st.text(st.characters(codec="utf-8"), max_size=12),
)
strings = st.builds(_escaped, texts, st.lists(st.integers(0, 3), max_size=4))
spaces = st.text(" \t\r\n", max_size=2)
scalars = st.one_of(
    strings,
    st.sampled_from(["true", "false", "null", "0", "-1.5e+10", "1E5", "NaN"]),
    st.integers().map(str),
)


def _join(parts: list[str], space: str, ends: str) -> str:
    return ends[0] + space + f"{space},{space}".join(parts) + space + ends[1]


def _arrays(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(_join, st.lists(inside, max_size=4), spaces, st.just("[]"))


def _objects(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.builds("{}{}:{}{}".format, strings, spaces, spaces, inside)
    return st.builds(_join, st.lists(pairs, max_size=5), spaces, st.just("{}"))


documents = st.recursive(
    scalars, lambda inside: _arrays(inside) | _objects(inside), max_leaves=20
)
bodies = st.builds(
    lambda before, text, after: (before + text + after).encode(),
    spaces,
    _objects(documents),
    spaces,
)


@given(bodies)
@example(b'{"model":"a","mod\\u0065l":"b"}')
@example(b'{"mod\\u0065l":"a","model":"b","model":null}')
@example(b'\xef\xbb\xbf{"model":{}}')
@example(b'{"m\\\\":1,"":2}')
def test_members_are_found_where_json_finds_them(body: bytes) -> None:
    """The last of a name that stands twice, escaped names, decoys inside of strings
    and of other members."""
    assert repr(values(body)) == repr(expected(body))


@given(bodies)
def test_no_truncation_is_an_object(body: bytes) -> None:
    whole = body.rstrip(b" \t\r\n")
    for size in range(len(whole)):
        with pytest.raises(ValueError):  # noqa: PT011
            members(whole[:size], NAMES)


@given(bodies, st.binary(min_size=1, max_size=3))
def test_nothing_may_follow_the_object(body: bytes, more: bytes) -> None:
    if more.strip(b" \t\r\n"):
        with pytest.raises(ValueError, match="follows"):
            members(body + more, NAMES)


@given(st.binary(max_size=60))
@example(b'{"model":"\\')
@example(b'{"\\u00')
@example(b'{"\\ud83d":1}')
@example(b"{" * 50)
def test_what_is_no_json_never_gives_a_place_outside_of_it(data: bytes) -> None:
    try:
        found = members(data, NAMES)
    except ValueError:
        return
    for place in found:
        assert place is None or 0 <= place[0] < place[1] <= len(data)


@given(bodies, st.integers(0, 400), st.binary(min_size=1, max_size=1))
def test_a_changed_byte_is_seen_or_changes_nothing(
    body: bytes, at: int, byte: bytes
) -> None:
    """Where `json` still reads an object, the scan reads the same members."""
    at %= len(body)
    body = body[:at] + byte + body[at + 1 :]
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict):
        assert repr(values(body)) == repr(expected(body))


# --- by hand ------------------------------------------------------------------------

PROMPT = 'Say {"model": "decoy", "user": "\\"} and "]}'


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ({"messages": [{"role": "user", "content": PROMPT}], "model": "m"}, "m"),
        ({"model": "m", "prompt": PROMPT * 500}, "m"),
        ({"prompt": json.dumps({"model": "decoy"}), "model": "m"}, "m"),
        ({"tools": [{"model": "decoy"}], "x": {"model": {"model": 1}}}, ...),
        ({"model": {"model": "decoy"}}, {"model": "decoy"}),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_prompts_that_look_like_json_change_nothing(
    body: dict[str, object], model: object, indent: int | None
) -> None:
    assert values(json.dumps(body, indent=indent).encode(), (b"model",)) == [model]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b'"model"',
        b"null",
        b'{"model"}',
        b'{"model":}',
        b'{"model":1,}',
        b'{"model":1 "user":2}',
        b'{"model" 1}',
        b"{'model':1}",
        b"{model:1}",
        b'{,"model":1}',
        b'{"model":1}}',
        b'{"model":1}{"model":2}',
        b'{"model":[1}',
        b'{"model":"a\\"}',
        b'{"model":@}',
        b"\xff\xfe{\x00}\x00",
    ],
)
def test_what_is_not_one_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        members(body, NAMES)


def test_a_part_of_a_body_is_looked_at_alone() -> None:
    body = b'[{"user":1}, {"model":"m"}]'
    assert members(body, (b"model",), 13, 26) == [(22, 25)]
    assert members(body, (b"user", b"model"), 1, 11) == [(9, 10), None]
    for start, end in ((-1, 5), (5, 4), (0, len(body) + 1)):
        with pytest.raises(ValueError, match="range"):
            members(body, (b"model",), start, end)


def test_names_that_are_no_bytes_are_refused() -> None:
    with pytest.raises(TypeError):
        members(b"{}", ("model",))  # type: ignore[arg-type]


HOSTILE = {
    "empty containers": lambda n: b'{"a":[' + b"{},[]," * n + b"1]}",
    "nesting": lambda n: b'{"a":' + b"[" * n + b"]" * n + b"}",
    "mixed nesting": lambda n: b'{"a":' + b'[{"b":' * n + b"1" + b"}]" * n + b"}",
    "backslashes": lambda n: b'{"a":"' + b"\\\\" * n + b'"}',
    "escaped quotes": lambda n: b'{"a":"' + b'\\"' * n + b'"}',
    "brackets in a string": lambda n: b'{"a":"' + b"{[]}" * n + b'"}',
    "short strings": lambda n: b'{"a":[' + b'"",' * n + b'""]}',
    "one mark far away": lambda n: b'{"a":[' + b'"x",' * n + b'"{"]}',
    "members": lambda n: b"{" + b'"model":1,' * n + b'"b":1}',
    "escaped names": lambda n: b"{" + b'"\\u006dodel":1,' * n + b'"b":1}',
    "space": lambda n: b'{"a":' + b" " * n + b"1}",
    "no end": lambda n: b'{"a":' + b"[" * n,
    "no closing quote": lambda n: b'{"a":"' + b"\\\\" * n + b'\\"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_of_megabytes_come_to_an_end(name: str) -> None:
    """In linear time: anything more would not end within this test's time limit."""
    body = HOSTILE[name](1_000_000)
    if name.startswith("no "):
        with pytest.raises(ValueError, match="does not end"):
            members(body, (b"model", b"user"))
    else:
        members(body, (b"model", b"user"))
