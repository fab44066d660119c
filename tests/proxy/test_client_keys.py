"""Keys of clients: who may ask, for which models, and what becomes of the key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from router.errors import BadRequest
from router.proxy.keys import parse
from router.settings import load
from tests.proxy.messages import code_of, completion, ok
from tests.proxy.running import PATIENCE, Running, running
from tests.support.http import Answer, post
from tests.support.raw_worker import RawWorker, like_vllm, saying

FREE, LIMITED = "free-for-all-models", "for-model-m-only"
KEYS: list[dict[str, object]] = [
    {"name": "free", "key": FREE},
    {"key_sha256": hashlib.sha256(LIMITED.encode()).hexdigest(), "models": ["m"]},
]


def get(path: str, *, fields: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: router\r\n{fields}\r\n".encode()


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}\r\n"


@contextmanager
def guarded(folder: Path, *flags: str) -> Iterator[tuple[Running, RawWorker, Path]]:
    """A worker of model `m`, and a router that goes by KEYS."""
    path = folder / "keys.json"
    path.write_text(json.dumps(KEYS))
    given = ("--client-api-keys-file", str(path), *flags)
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=given) as router,
    ):
        yield router, worker, path


def ask(router: Running, key: str, model: str = "m") -> Answer:
    return router.ask(completion(model, fields=bearer(key)))


@pytest.mark.parametrize(
    "fields",
    [
        "",
        bearer("wrong"),
        bearer(FREE[:-1]),
        bearer(FREE + "x"),
        bearer(""),
        f"Authorization: Basic {FREE}\r\n",
        f"Authorization: {FREE}\r\n",
        f"x-api-key: {FREE}\r\n",
        bearer(hashlib.sha256(LIMITED.encode()).hexdigest()),
    ],
)
def test_without_a_good_key_no_server_is_asked(tmp_path: Path, fields: str) -> None:
    with guarded(tmp_path) as (router, worker, _):
        answer = router.ask(completion(fields=fields))
        assert (answer.status, code_of(answer.body)) == (401, "invalid_api_key")
        assert answer.header(b"www-authenticate") == b"Bearer"
        assert router.ask(get("/version")).status == 401
        assert not worker.requests


def test_a_key_opens_all_models_or_those_that_it_is_limited_to(tmp_path: Path) -> None:
    with guarded(tmp_path, "--model-alias", "other=m") as (router, _, _):
        assert ask(router, FREE).status == 200
        assert ask(router, FREE, "other").status == 200
        assert ask(router, LIMITED).status == 200
        refused = ask(router, LIMITED, "other")
        assert (refused.status, code_of(refused.body)) == (403, "model_not_allowed")
        # It does not tell which models there are.
        assert ask(router, LIMITED, "none").status == 403


def test_a_limited_key_reaches_the_only_model_unnamed_and_nothing_without_one(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path) as (router, _, _):
        fields = bearer(LIMITED)
        assert router.ask(post("/tokenize", b"{}", fields=fields)).status == 200
        assert router.ask(get("/version", fields=fields)).status == 403
        assert router.ask(get("/version", fields=bearer(FREE))).status == 200


@pytest.mark.parametrize(
    ("flags", "sent"), [((), []), (("--api-key", "own"), [b"Bearer own"])]
)
def test_the_key_ends_at_the_router(
    tmp_path: Path, flags: tuple[str, ...], sent: list[bytes]
) -> None:
    with guarded(tmp_path, *flags) as (router, worker, _):
        assert ask(router, FREE).status == 200
        head = worker.requests[-1].partition(b"\r\n\r\n")[0]
        lines = [line.partition(b": ") for line in head.split(b"\r\n")]
        assert [v for k, _, v in lines if k.lower() == b"authorization"] == sent
        assert FREE.encode() not in worker.requests[-1]


def test_the_router_s_own_paths_do_not_ask_for_it(tmp_path: Path) -> None:
    with guarded(tmp_path) as (router, _, _):
        for path in ("/health", "/v1/models", "/metrics", "/workers"):
            assert router.ask(get(path)).status == 200


def test_keys_change_while_the_router_runs(tmp_path: Path) -> None:
    with guarded(tmp_path) as (router, _, path):
        path.write_text(f"- key: new-one\n- key: {LIMITED}\n")
        deadline = monotonic() + PATIENCE
        while ask(router, "new-one").status != 200 and monotonic() < deadline:
            sleep(0.05)
        assert ask(router, "new-one").status == 200
        assert ask(router, FREE).status == 401


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("just-a-key", "Entry 2: Expected"),
        ({"name": "n"}, "Entry 2: needs one of"),
        ({"key": "a", "key_sha256": "0" * 64}, "Entry 2: needs one of"),
        ({"key_sha256": "abc"}, "Entry 2: Expected"),
        ({"key": "hid den"}, "Entry 2: Expected"),
        ({"key": "hidden", "modles": ["m"]}, "Entry 2: .*modles"),
        ({"key": FREE}, "Entry 2: its key stands twice"),
    ],
)
def test_a_mistake_names_the_entry_and_shows_no_key(entry: object, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as raised:
        parse([KEYS[0], entry])
    assert "hid" not in raised.value.message
    assert FREE not in raised.value.message


def test_the_path_is_a_setting() -> None:
    assert load(["--client-api-keys-file", "f"], {}).client_api_keys_file == "f"
