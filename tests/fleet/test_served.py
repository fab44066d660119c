"""What a worker serves, from what was given and what its list says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from router.fleet.served import GlobalAliases, Served, listed, serve
from router.fleet.worker import ModelCard, Registration
from tests.fleet.fleets import cards


def served(
    *names: str,
    read: bool = True,
    given: tuple[str, ...] = (),
    model_id: str | None = None,
    aliases: Mapping[str, str | None] | None = None,
    everywhere: Mapping[str, str] | None = None,
    unlisted_wildcard: bool = False,
) -> Served:
    """`names`: of its list, if that was read."""
    registration = Registration(
        "http://h", model_id=model_id, models=given, aliases=aliases or {}
    )
    return serve(
        registration,
        tuple(cards(*names)) if read else None,
        GlobalAliases(everywhere or {}),
        unlisted_wildcard=unlisted_wildcard,
    )


def test_given_models_serve_until_the_list_was_read() -> None:
    assert served(read=False, given=("a", "b")).names == {"a", "b"}
    assert served("c", given=("a", "b")).names == {"c"}


def test_a_model_id_serves_until_the_list_was_read() -> None:
    assert served(read=False, model_id="a").names == {"a"}
    assert served("c", model_id="a").names == {"c"}
    assert served(read=False, model_id="a", given=("b",)).names == {"b"}


def test_the_placeholder_never_becomes_a_model() -> None:
    assert served(read=False, model_id="unknown").names == set()
    assert served(read=False, given=("unknown",)).names == set()
    assert listed(cards("unknown", "*", "", "a")) == tuple(cards("a"))


def test_an_id_that_is_listed_twice_is_one_model() -> None:
    twice = [ModelCard("a", root="first"), ModelCard("a", root="second")]
    assert listed(twice) == (ModelCard("a", root="first"),)


def test_a_star_makes_a_wildcard_whatever_the_list_says() -> None:
    assert served(read=False, given=("*",)).wildcard
    both = served("a", given=("*",))
    assert both.wildcard
    assert both.names == {"a"}


def test_an_empty_list_is_a_wildcard_only_if_unlisted_workers_are() -> None:
    assert not served().wildcard
    assert served(unlisted_wildcard=True).wildcard
    assert not served(read=False, unlisted_wildcard=True).wildcard
    assert not served("a", unlisted_wildcard=True).wildcard


def test_an_empty_list_that_was_read_overrules_what_was_given() -> None:
    assert served(given=("a",)).names == set()


def test_an_alias_stays_when_the_list_is_read_and_carries_the_real_name() -> None:
    found = served("a", "b", aliases={"fast": "b"})
    assert found.names == {"a", "b", "fast"}
    assert found.renames == {"fast": "b"}


def test_an_alias_leads_nowhere_while_the_list_does_not_name_its_model() -> None:
    """The worker would answer 404 for it."""
    found = served("other", aliases={"fast": "b"})
    assert found.names == {"other"}
    assert found.renames == {}
    assert found.aliases == {"fast": "b"}


def test_an_alias_of_a_worker_that_lists_nothing_serves() -> None:
    assert served(aliases={"fast": "b"}).names == {"fast"}
    assert served(read=False, aliases={"fast": "b"}).renames == {"fast": "b"}


def test_an_alias_of_a_wildcard_serves_whatever_is_listed() -> None:
    found = served("other", given=("*",), aliases={"fast": "b"})
    assert found.renames == {"fast": "b"}


def test_an_alias_without_a_model_is_of_the_first_base_model() -> None:
    found = served("b/lora", "b", "c", aliases={"fast": None})
    assert found.aliases == {"fast": "b"}
    assert found.renames == {"fast": "b"}
    unread = served(read=False, aliases={"fast": None})
    assert unread.names == {"fast"}
    assert unread.renames == {}


def test_a_model_of_its_own_is_not_renamed_by_an_alias() -> None:
    found = served("a", "b", aliases={"a": "b"}, everywhere={"b": "a"})
    assert found.names == {"a", "b"}
    assert found.renames == {}


def test_a_global_alias_is_of_every_worker_of_its_model() -> None:
    aliases = {"gpt": "a", "four": "a", "other": "z"}
    found = served("a", "b", everywhere=aliases)
    assert found.names == {"a", "b", "gpt", "four"}
    assert found.renames == {"gpt": "a", "four": "a"}
    assert served("b", everywhere=aliases).names == {"b"}


def test_a_wildcard_serves_every_global_alias() -> None:
    found = served(read=False, given=("*",), everywhere={"gpt": "a"})
    assert found.renames == {"gpt": "a"}


def test_a_global_alias_of_an_alias_carries_the_real_name() -> None:
    chain = served("a", everywhere={"x": "y", "y": "a"})
    assert chain.renames == {"x": "a", "y": "a"}
    own = served("a", aliases={"fast": "a"}, everywhere={"gpt": "fast"})
    assert own.renames == {"fast": "a", "gpt": "a"}


def test_a_worker_knows_its_own_alias_better() -> None:
    found = served("a", "b", aliases={"gpt": "b"}, everywhere={"gpt": "a"})
    assert found.renames == {"gpt": "b"}


@pytest.mark.parametrize(
    "aliases",
    [
        {"a": "a"},
        {"a": "b", "b": "a"},
        {"x": "a", "a": "b", "b": "a"},
        {"unknown": "a"},
        {"a": "unknown"},
        {"*": "a"},
        {"a": "*"},
        {"": "a"},
        {"a": ""},
    ],
)
def test_global_aliases_that_lead_nowhere_are_refused(aliases: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="alias"):
        GlobalAliases(aliases)
