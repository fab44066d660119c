"""What POST /workers and PATCH take, and what they refuse by name."""

from __future__ import annotations

import pytest

from router.errors import BadRequest
from router.fleet.registration import parse, parse_patch
from router.fleet.worker import Patch, Registration


def test_a_url_is_enough() -> None:
    assert parse({"url": "http://H:8000/"}) == Registration("http://h:8000")


def test_every_field_is_taken() -> None:
    body = {
        "url": "http://h:8000",
        "model_id": "label",
        "models": ["a", "org/b"],
        "aliases": {"fast": "a"},
        "weight": 2,
        "max_concurrency": 8,
        "provider": "openai",
        "api_key": "sk-1",
        "labels": {"zone": "eu", "gpus": 8, "spot": True},
        "dp_size": 4,
        "priority": 10,
    }
    assert parse(body) == Registration(
        url="http://h:8000",
        model_id="label",
        models=("a", "org/b"),
        aliases={"fast": "a"},
        weight=2.0,
        max_concurrency=8,
        provider="openai",
        api_key="sk-1",
        labels={"zone": "eu", "gpus": "8", "spot": "true"},
        dp_size=4,
        priority=10,
    )


def test_null_is_as_good_as_absent() -> None:
    body = dict.fromkeys(
        ["model_id", "models", "aliases", "provider", "api_key", "labels", "dp_size"]
    )
    assert parse({"url": "http://h", **body}) == Registration("http://h")


def test_aliases_in_a_list_are_of_the_first_base_model() -> None:
    body = {"url": "http://h", "aliases": ["fast", "default"]}
    assert parse(body).aliases == {"fast": None, "default": None}


def test_cost_is_kept_as_a_label() -> None:
    assert parse({"url": "http://h", "cost": 1.5}).labels == {"cost": "1.5"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": None}, "url"),
        ({"url": 7}, "url"),
        ({"url": "http://h/v1"}, "url"),
        ({"wait": 1}, "wait"),
        ({"weight": 0}, "weight"),
        ({"weight": -1}, "weight"),
        ({"weight": "2"}, "weight"),
        ({"weight": True}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": float("inf")}, "weight"),
        ({"max_concurrency": -1}, "max_concurrency"),
        ({"max_concurrency": 1.5}, "max_concurrency"),
        ({"max_concurrency": 2**31}, "max_concurrency"),
        ({"priority": -1}, "priority"),
        ({"priority": None}, "priority"),
        ({"models": "a"}, "models"),
        ({"models": [""]}, "models"),
        ({"models": [1]}, "models"),
        ({"models": ["a\nb"]}, "models"),
        ({"models": ["a" * 513]}, "models"),
        ({"model_id": ""}, "model_id"),
        ({"aliases": {"a": 1}}, "aliases"),
        ({"aliases": "a"}, "aliases"),
        ({"aliases": ["unknown"]}, "aliases"),
        ({"aliases": {"a": "*"}}, "aliases"),
        ({"provider": ""}, "provider"),
        ({"provider": "a b"}, "provider"),
        ({"api_key": "a\r\nX: y"}, "api_key"),
        ({"api_key": "schlüssel"}, "api_key"),
        ({"labels": {"a": [1]}}, "labels"),
        ({"labels": [1]}, "labels"),
        ({"dp_size": 0}, "dp_size"),
        ({"dp_size": 5000}, "dp_size"),
    ],
)
def test_a_mistake_names_its_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse({"url": "http://h", **change})
    assert caught.value.param == field


def test_a_body_without_a_url_is_refused() -> None:
    with pytest.raises(BadRequest) as caught:
        parse({})
    assert caught.value.param == "url"


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(BadRequest):
        parse(body)
    with pytest.raises(BadRequest):
        parse_patch(body)


def test_a_patch_leaves_alone_what_it_does_not_name() -> None:
    assert parse_patch({}) == Patch()
    assert parse_patch({"weight": 3}) == Patch(weight=3.0)
    assert parse_patch({"models": [], "labels": {}}) == Patch(models=(), labels={})


@pytest.mark.parametrize("field", ["url", "provider", "max_concurrency", "api_key"])
def test_a_patch_refuses_what_cannot_change(field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_patch({field: "x"})
    assert caught.value.param == field
