"""Workers that a list names: what becomes of the fleet when the list changes."""

from __future__ import annotations

import pytest

from router.errors import BadRequest
from router.fleet.discovery.listed import ListedWorkers, parse
from router.fleet.worker import Registration, Status
from tests.fleet.fleets import join, make_registry, now, url


def test_an_entry_is_a_url_or_what_the_api_takes() -> None:
    entries = ["http://B:1/", {"url": "http://a:2", "weight": 2, "dp_size": 3}]
    assert parse(entries, dp_size=2) == (
        Registration("http://b:1", dp_size=2),
        Registration("http://a:2", weight=2.0, dp_size=3),
    )


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (7, "Entry 2: Expected"),
        ("http://b/v1", "Entry 2: .*path"),
        ({"url": "http://b", "wieght": 1}, "Entry 2: .*wieght"),
        ("http://A:1/", "Entry 2: its URL stands twice"),
        ({"url": "http://b", "api_key": "top secret"}, "Entry 2"),
    ],
)
def test_a_mistake_names_the_entry_and_shows_no_key(bad: object, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as raised:
        parse(["http://a:1", bad])
    assert "top secret" not in raised.value.message


def test_new_entries_join_and_gone_ones_are_drained() -> None:
    registry = make_registry()
    listed = ListedWorkers(registry)
    listed.follow(parse([url(1), url(2)]))
    one = registry.find(url(1))
    listed.follow(parse([url(2), url(3)]))
    assert registry.find(one.id).status is Status.DRAINING
    registry.tick()
    assert [worker.url for worker in registry.workers()] == [url(2), url(3)]


def test_an_entry_that_stays_keeps_its_worker_as_it_is() -> None:
    registry = make_registry()
    listed = ListedWorkers(registry)
    listed.follow(parse([url(1)]))
    worker = registry.find(url(1))
    listed.follow(parse([url(2), url(1)]))
    assert registry.find(url(1)) is worker


def test_workers_that_others_registered_stay() -> None:
    registry = make_registry()
    other = join(registry, 1, "m")
    listed = ListedWorkers(registry)
    listed.follow(parse([url(2)]))
    listed.follow(())
    registry.tick()
    assert registry.workers() == (now(other),)


def test_who_was_put_in_the_place_of_one_of_the_list_stays() -> None:
    registry = make_registry()
    listed = ListedWorkers(registry)
    listed.follow(parse([url(1)]))
    other = join(registry, 1, "m")
    listed.follow(parse([{"url": url(1), "weight": 3}]))
    listed.follow(())
    registry.tick()
    assert registry.workers() == (now(other),)
    assert now(other).weight == 1


def test_one_that_went_meanwhile_comes_back_with_the_next_edit() -> None:
    registry = make_registry()
    listed = ListedWorkers(registry)
    listed.follow(parse([url(1)]))
    registry.remove(url(1))
    listed.follow(parse([url(1), url(2)]))
    assert {worker.url for worker in registry.workers()} == {url(1), url(2)}


def test_weight_and_the_like_change_in_place_and_the_rest_anew() -> None:
    registry = make_registry()
    listed = ListedWorkers(registry)
    listed.follow(parse([url(1)]))
    worker = registry.find(url(1))
    listed.follow(parse([{"url": url(1), "weight": 3, "labels": {"zone": "a"}}]))
    changed = registry.find(url(1))
    assert (changed.id, changed.weight, changed.labels) == (
        *(worker.id, 3.0),
        {"zone": "a"},
    )
    listed.follow(parse([{"url": url(1), "max_concurrency": 4}]))
    assert registry.find(url(1)).id != worker.id
