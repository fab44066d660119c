"""The rig's mock fleet over several processes."""

from __future__ import annotations

from bench.rig.engines import BASE_PORT, Engines, summed


def test_a_small_fleet_is_at_one_address() -> None:
    assert Engines(2, 1).addresses == [
        f"127.0.0.1:{BASE_PORT}",
        f"127.0.0.1:{BASE_PORT + 1}",
    ]


def test_a_large_fleet_has_an_address_for_each_engine() -> None:
    addresses = Engines(10_000, 625).addresses
    assert len(set(addresses)) == 10_000
    assert {where.partition(":")[0] for where in addresses} == {
        f"127.0.0.{n}" for n in (1, 2, 3, 4)
    }


def test_a_fleet_can_be_split_for_its_connections() -> None:
    assert len({where.partition(":")[0] for where in Engines(16, 1, 4).addresses}) == 4


def test_counts_of_all_processes_are_one() -> None:
    one = {"chat": 1, "per_port": [1], "unknown": {"/a": 1}}
    two = {"chat": 2, "per_port": [0, 2], "unknown": {"/a": 1, "/b": 3}}
    assert summed([one, two]) == {
        "chat": 3,
        "per_port": [1, 0, 2],
        "unknown": {"/a": 2, "/b": 3},
    }
