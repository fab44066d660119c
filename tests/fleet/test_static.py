"""Workers named on the command line."""

from __future__ import annotations

import pytest

from router.errors import BadRequest
from router.fleet.discovery.static import registrations
from router.fleet.worker import Registration


def test_each_url_is_a_worker_in_the_order_given() -> None:
    assert registrations(["http://B:1/", "http://a:2"]) == (
        Registration("http://b:1"),
        Registration("http://a:2"),
    )
    assert registrations([]) == ()


def test_data_parallel_urls_have_ranks_from_zero_each() -> None:
    found = registrations(["http://a:1", "http://b:1"], dp_size=4)
    assert [(r.dp_size, r.dp_start_rank) for r in found] == [(4, 0), (4, 0)]


def test_nodes_of_one_hybrid_deployment_are_numbered_across_the_nodes() -> None:
    """With ranks from 0 on every node, all nodes but the first would answer 400."""
    found = registrations(
        ["http://a:1", "http://b:1", "http://c:1"], dp_size=4, dp_start_rank=8
    )
    assert [(r.dp_size, r.dp_start_rank) for r in found] == [(4, 8), (4, 12), (4, 16)]


def test_one_rank_a_node_still_has_a_rank() -> None:
    (found,) = registrations(["http://a:1"], dp_start_rank=3)
    assert (found.dp_size, found.dp_start_rank) == (1, 3)


def test_a_mistake_names_the_url() -> None:
    with pytest.raises(BadRequest, match=r"'http://a:1/v1'.*path"):
        registrations(["http://ok:1", "http://a:1/v1"])
    with pytest.raises(BadRequest, match=r"'http://A:1/' is given twice"):
        registrations(["http://a:1", "http://A:1/"])
