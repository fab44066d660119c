"""When servers are probed, on a clock that stands still until it is set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from router.fleet.schedule import LONGEST_PAUSE, REPEATS_PER_SEC, Schedule

STEP = 0.005


def schedule(
    *,
    interval: float = 10.0,
    failures: int = 3,
    successes: int = 1,
    startup_timeout: float = 0.0,
) -> Schedule[str]:
    return Schedule(
        interval=interval,
        failure_threshold=failures,
        success_threshold=successes,
        startup_timeout=startup_timeout,
        random=Random(1),
    )


def run(
    probes: Schedule[str], start: float, end: float, *, failing: bool = True
) -> list[tuple[float, str]]:
    """Every probe from `start` to `end`, each of which fails if `failing`."""
    found = []
    for tick in range(round((end - start) / STEP)):
        now = start + tick * STEP
        for key in probes.due(now, 1000):
            found.append((now, key))
            if failing:
                probes.bad(key, now, refused=True)
    return found


def up(probes: Schedule[str], key: str, now: float) -> None:
    """A server that is up and settled."""
    probes.add(key, now)
    probes.good(key, now)
    probes.settle(key, now, True)


def test_a_new_server_is_probed_at_once() -> None:
    probes = schedule()
    probes.add("a", 5.0)
    assert probes.next_due() == 5.0
    assert probes.due(5.0, 10) == ["a"]
    assert probes.due(5.0, 10) == []


def test_one_that_is_not_up_is_probed_again_soon_and_then_a_little_later() -> None:
    probes = schedule()
    probes.add("a", 0.0)
    times = [time for time, _ in run(probes, 0.0, 6.0)]
    pauses = [after - before for before, after in pairwise(times)]
    assert 0.1 - STEP <= pauses[0] <= 0.25 + STEP
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE, abs=2 * STEP)
    assert max(pauses) <= LONGEST_PAUSE + STEP


def test_a_probe_that_hangs_keeps_no_later_one_away() -> None:
    probes = schedule()
    probes.add("a", 0.0)
    assert len(run(probes, 0.0, 3.0, failing=False)) >= 4


def test_of_three_hundred_that_are_down_each_is_probed_every_three_quarters() -> None:
    """So one that comes up is seen, and its list read, within a second."""
    probes = schedule()
    for number in range(300):
        probes.add(str(number), 0.0)
    found = run(probes, 0.0, 20.0)
    for number in range(300):
        times = [time for time, key in found if key == str(number)]
        gaps = [after - before for before, after in pairwise(times)]
        assert max(gaps) < 0.9


def test_ten_thousand_that_are_down_cost_no_more_than_the_rate() -> None:
    probes = schedule()
    for number in range(10_000):
        probes.add(str(number), 0.0)
    first = [key for _ in range(10) for key in probes.due(0.0, 1000)]
    assert len(set(first)) == 10_000, "every first probe is due at once"
    repeats = run(probes, 0.0, 30.0)
    for second in range(30):
        count = sum(1 for time, _ in repeats if second <= time < second + 1)
        assert count <= REPEATS_PER_SEC * 1.1
    assert len({key for _, key in repeats}) == 10_000, "and every one has its turn"


def test_the_first_probe_of_a_new_one_does_not_wait_for_the_dead() -> None:
    probes = schedule()
    for number in range(5_000):
        probes.add(str(number), 0.0)
    run(probes, 0.0, 3.0)
    probes.add("new", 3.0)
    assert "new" in probes.due(3.0, 1000)


def test_a_turn_probes_no_more_than_it_may() -> None:
    probes = schedule()
    for number in range(40):
        probes.add(str(number), 0.0)
    turns = [len(probes.due(0.0, 16)) for _ in range(4)]
    assert turns == [16, 16, 8, 0]


def test_the_first_good_probe_brings_a_server_up() -> None:
    probes = schedule()
    probes.add("a", 0.0)
    assert not probes.is_up("a")
    assert probes.good("a", 0.0)
    assert probes.is_up("a")
    assert not probes.good("a", 1.0), "it was up already"


def test_several_good_probes_in_a_row_may_be_asked_for() -> None:
    probes = schedule(successes=3)
    probes.add("a", 0.0)
    assert not probes.good("a", 0.0)
    assert not probes.good("a", 0.25)
    probes.bad("a", 0.5, refused=False)
    assert not probes.good("a", 0.75)
    assert not probes.good("a", 1.0)
    assert probes.good("a", 1.25)


def test_the_next_of_several_good_probes_comes_soon() -> None:
    probes = schedule(successes=2)
    probes.add("a", 0.0)
    run(probes, 0.0, 5.0)
    probes.good("a", 5.0)
    assert probes.next_due() == pytest.approx(5.25)


def test_a_settled_server_is_checked_every_interval_or_so() -> None:
    probes = schedule(interval=10.0)
    up(probes, "a", 0.0)
    times = [time for time, _ in run(probes, 0.0, 100.0, failing=False)]
    assert 0 < times[0] <= 10.0
    gaps = [after - before for before, after in pairwise(times)]
    assert all(9.0 - STEP <= gap <= 11.0 + STEP for gap in gaps)


def test_servers_that_come_up_together_are_not_checked_together() -> None:
    probes = schedule(interval=10.0)
    for number in range(100):
        up(probes, str(number), 0.0)
    checks = run(probes, 0.0, 11.0, failing=False)
    busiest = max(sum(1 for t, _ in checks if s <= t < s + 1) for s in range(11))
    assert busiest <= 40


def test_settled_servers_are_checked_some_at_a_moment() -> None:
    """So that a large idle fleet wakes the process up some times a second only."""
    probes = schedule(interval=10.0)
    for number in range(100):
        up(probes, str(number), 0.0)
    due = {round(time, 6) for time, _ in probes_due(probes, 100)}
    assert len(due) <= 45
    assert all(time % 0.25 == pytest.approx(0) for time in due)


def test_the_checks_of_a_large_fleet_do_not_all_meet() -> None:
    """Hundreds at one moment would hold up the requests that come then."""
    probes = schedule(interval=10.0)
    for number in range(2000):
        up(probes, str(number), number % 100 / 10)
    met = Counter(round(time, 6) for time, _ in probes_due(probes, 2000))
    assert max(met.values()) <= 60


def probes_due(probes: Schedule[str], count: int) -> Iterator[tuple[float, str]]:
    """The next probes, each at the very time it is due."""
    for _ in range(count):
        now = probes.next_due()
        assert now is not None
        for key in probes.due(now, 1):
            yield now, key


def test_a_settled_server_goes_down_at_the_threshold() -> None:
    probes = schedule(failures=3)
    up(probes, "a", 0.0)
    assert not probes.bad("a", 10.0, refused=False)
    assert not probes.bad("a", 20.0, refused=False)
    assert probes.good("a", 25.0) is False, "which starts the count anew"
    assert not probes.bad("a", 30.0, refused=False)
    assert not probes.bad("a", 40.0, refused=False)
    assert probes.bad("a", 50.0, refused=False)
    assert not probes.is_up("a")


def test_a_refused_connection_takes_a_server_down_at_once_and_it_is_probed() -> None:
    probes = schedule(failures=3)
    up(probes, "a", 0.0)
    assert probes.bad("a", 1.0, refused=True)
    assert not probes.bad("a", 1.0, refused=True), "it is down already"
    probes.settle("a", 1.0, False)
    assert probes.due(1.0, 10) == ["a"]


def test_one_that_has_no_requests_yet_goes_down_at_its_first_failure() -> None:
    probes = schedule(failures=3)
    probes.add("a", 0.0)
    probes.good("a", 0.0)
    assert probes.bad("a", 0.25, refused=False)


def test_one_that_is_up_but_not_settled_is_still_probed_soon() -> None:
    """Its list names nothing yet, and is to be read again at each check."""
    probes = schedule(interval=1000.0)
    probes.add("a", 0.0)
    probes.good("a", 0.0)
    assert len(run(probes, 0.0, 10.0, failing=False)) >= 10


def test_a_server_that_has_gone_is_probed_no_more() -> None:
    probes = schedule()
    probes.add("a", 0.0)
    probes.discard("a")
    assert probes.due(1.0, 10) == []
    assert probes.next_due() is None
    probes.discard("a")


def test_a_server_that_never_settles_is_given_up_after_the_startup_timeout() -> None:
    probes = schedule(startup_timeout=60.0)
    probes.add("a", 0.0)
    up(probes, "b", 0.0)
    probes.add("c", 30.0)
    run(probes, 0.0, 59.0)
    assert probes.expired(59.0) == []
    assert probes.expired(60.0) == ["a"]
    assert probes.expired(60.0) == []
    assert probes.expired(90.0) == ["c"]


def test_one_that_was_settled_once_is_never_given_up() -> None:
    probes = schedule(startup_timeout=60.0)
    up(probes, "a", 0.0)
    probes.bad("a", 1.0, refused=True)
    probes.settle("a", 1.0, False)
    assert probes.expired(1000.0) == []


def test_the_time_to_give_up_wakes_the_prober() -> None:
    probes = schedule(startup_timeout=0.1)
    probes.add("a", 0.0)
    probes.due(0.0, 10)
    assert probes.next_due() == pytest.approx(0.1)


def test_whoever_sleeps_until_the_next_is_due_misses_none() -> None:
    probes = schedule()
    for number in range(500):
        probes.add(str(number), 0.0)
    now, count = 0.0, 0
    while now < 5.0:
        found = probes.due(now, 16)
        count += len(found)
        for key in found:
            probes.bad(key, now, refused=True)
        due = probes.next_due()
        assert due is not None
        if not found:
            assert due > now, "nothing was due, so it must not say so"
        now = max(now, due)
    assert count >= 500 + 4.5 * REPEATS_PER_SEC
