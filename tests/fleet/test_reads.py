"""Who is read when, on a clock that stands still until it is set."""

from __future__ import annotations

from router.fleet.reads import (
    FIRST_BACKOFF,
    GRACE_SECS,
    LEAST_PAUSE,
    LONGEST_BACKOFF,
    MOST_OTHERS,
    MOST_READS,
    Reads,
)


def reads(*names: str) -> Reads[str]:
    queue: Reads[str] = Reads()
    for name in names:
        queue.add(name)
    return queue


def many(count: int, prefix: str = "s") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def ask_all(queue: Reads[str], names: list[str], now: float, *, first: bool) -> None:
    for name in names:
        assert queue.ask(name, now, first=first)


def test_a_read_starts_at_once_when_there_is_room() -> None:
    queue = reads("a")
    assert queue.ask("a", 0.0, first=True)
    assert queue.start(0.0) == ["a"]
    assert queue.start(0.0) == []


def test_a_server_is_read_once_however_often_it_is_asked_for() -> None:
    queue = reads("a")
    for _ in range(3):
        assert queue.ask("a", 0.0, first=True)
    assert queue.start(0.0) == ["a"]
    assert queue.ask("a", 0.0, first=False)
    assert queue.start(0.0) == []


def test_no_more_are_in_flight_than_may_be() -> None:
    names = many(100)
    queue = reads(*names)
    ask_all(queue, names, 0.0, first=True)
    started = queue.start(0.0)
    assert started == names[:MOST_READS]
    queue.finished(started[0], 0.1, timed_out=False)
    assert queue.start(0.1) == [names[MOST_READS]]


def test_refreshes_leave_room_for_first_reads() -> None:
    refreshed, new = many(40, "old"), many(MOST_READS - MOST_OTHERS, "new")
    queue = reads(*refreshed, *new)
    ask_all(queue, refreshed, 0.0, first=False)
    assert len(queue.start(0.0)) == MOST_OTHERS
    ask_all(queue, new, 0.0, first=True)
    assert queue.start(0.0) == new


def test_first_reads_that_hang_give_way_to_one_that_waits() -> None:
    hanging = many(40, "hangs")
    queue = reads(*hanging, "new")
    ask_all(queue, hanging, 0.0, first=True)
    assert len(queue.start(0.0)) == MOST_READS
    queue.ask("new", 0.1, first=True)
    assert queue.overdue(0.1) == [], "each may run for a moment"
    assert queue.next_overdue() == GRACE_SECS
    late = queue.overdue(GRACE_SECS)
    assert late == hanging[: 40 - MOST_READS + 1], "as many as wait, no more"
    for name in late:
        queue.finished(name, GRACE_SECS, timed_out=True)
    assert queue.start(GRACE_SECS)[-1] == "new"
    assert queue.next_overdue() is None


def test_nobody_gives_way_while_there_is_room() -> None:
    queue = reads("a", "b")
    queue.ask("a", 0.0, first=True)
    queue.start(0.0)
    queue.ask("b", 9.0, first=True)
    assert queue.overdue(9.0) == []


def test_a_list_that_timed_out_is_left_alone_longer_each_time() -> None:
    queue = reads("a")
    now, pauses = 0.0, []
    for _ in range(8):
        assert queue.ask("a", now, first=True)
        assert queue.start(now) == ["a"]
        queue.finished("a", now, timed_out=True)
        asked = now
        while not queue.ask("a", now, first=True):
            now += 0.25
        pauses.append(now - asked)
        queue.start(now)
        queue.finished("a", now, timed_out=True)
        now += LONGEST_BACKOFF
    assert pauses[0] == FIRST_BACKOFF
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_BACKOFF


def test_a_list_that_timed_out_has_no_first_read_until_it_was_read() -> None:
    slow, others = "slow", many(MOST_OTHERS)
    queue = reads(slow, *others)
    queue.ask(slow, 0.0, first=True)
    queue.start(0.0)
    queue.finished(slow, 5.0, timed_out=True)
    ask_all(queue, others, 6.0, first=False)
    queue.start(6.0)
    assert queue.ask(slow, 10.0, first=True)
    assert queue.start(10.0) == []
    queue.finished(others[0], 10.0, timed_out=False)
    assert queue.start(10.0) == [slow]


def test_a_list_is_not_read_without_a_pause() -> None:
    queue = reads("a")
    queue.ask("a", 0.0, first=True)
    queue.start(0.0)
    queue.finished("a", 1.0, timed_out=False)
    assert not queue.ask("a", 1.0, first=False)
    assert queue.ask("a", 1.0 + LEAST_PAUSE, first=False)


def test_one_that_comes_back_after_an_outage_is_as_good_as_new() -> None:
    queue = reads("a")
    queue.ask("a", 0.0, first=True)
    queue.start(0.0)
    queue.finished("a", 5.0, timed_out=True)
    queue.add("a")
    assert queue.ask("a", 5.0, first=True)
    assert queue.start(5.0) == ["a"]


def test_one_that_has_gone_neither_waits_nor_counts() -> None:
    names = many(MOST_READS)
    queue = reads(*names, "last", "next")
    ask_all(queue, [*names, "last", "next"], 0.0, first=True)
    queue.start(0.0)
    queue.discard("last")
    queue.discard(names[0])
    assert queue.start(0.0) == ["next"]
    queue.finished(names[0], 1.0, timed_out=True)
