"""Requests that wait for a worker: in what order they get one, and who gets none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from router._core import Slot, Slots
from router.errors import Draining, ModelNotFound
from router.proxy.hold import HoldQueue, Kind


class Stock:
    """Slots that come one by one, for looks that take them."""

    def __init__(self) -> None:
        self._slots = Slots()
        self._group = self._slots.add_group(1.0, 0, 0, 0)
        self.free: list[Slot] = []
        self.given_back: list[Slot] = []
        self.looks = 0

    def add(self, count: int = 1) -> None:
        for number in range(count):
            self.free.append(self._slots.acquire(None, number, self._group))

    def look(self) -> Slot | None:
        self.looks += 1
        return self.free.pop() if self.free else None


def kind(model: str) -> Kind:
    return Kind(model, None, None, True)


class Waiters:
    """Some who wait, and the order in which they got something."""

    def __init__(self, hold: HoldQueue) -> None:
        self.hold = hold
        self.served: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def add(
        self, name: str, stock: Stock, look: Callable[[], Slot | None] | None = None
    ) -> None:
        """One whose kind is its name's first letter."""

        async def wait() -> None:
            slot = await self.hold.wait(
                kind(name[0]), look or stock.look, stock.given_back.append
            )
            self.served.append(name if slot is not None else f"not {name}")

        self.tasks[name] = asyncio.create_task(wait())
        await asyncio.sleep(0)

    async def settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert len(self.hold) == 0


async def test_who_came_first_is_served_first_over_all_kinds() -> None:
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=60))
    for name in ("a1", "b1", "a2", "b2"):
        await waiters.add(name, stock)
    for count in (1, 2):
        stock.add(count)
        waiters.hold.wake()
        await waiters.settle()
    assert waiters.served == ["a1", "b1", "a2"]
    assert len(waiters.hold) == 1
    await waiters.end()


async def test_those_who_can_use_nothing_do_not_stand_in_the_way() -> None:
    nothing, stock = Stock(), Stock()
    waiters = Waiters(HoldQueue(size=10, timeout=60))
    await waiters.add("a1", nothing)
    await waiters.add("a2", nothing)
    await waiters.add("b1", stock)
    stock.add()
    waiters.hold.wake(most=1)
    await waiters.settle()
    assert waiters.served == ["b1"]
    await waiters.end()


async def test_of_those_alike_one_look_is_enough_to_know_there_is_nothing() -> None:
    nothing = Stock()
    waiters = Waiters(HoldQueue(size=100, timeout=60))
    for number in range(50):
        await waiters.add(f"a{number}", nothing)
    waiters.hold.wake()
    assert nothing.looks == 1
    await waiters.end()


async def test_only_those_whom_it_may_concern_look() -> None:
    stock, other = Stock(), Stock()
    waiters = Waiters(HoldQueue(size=10, timeout=60))
    await waiters.add("a1", other)
    await waiters.add("b1", stock)
    stock.add()
    waiters.hold.wake(who=lambda kind: kind.model == "b")
    await waiters.settle()
    assert (waiters.served, other.looks) == (["b1"], 0)
    await waiters.end()


async def test_what_was_found_cannot_be_taken_by_who_comes_later() -> None:
    """The one who waits has it before its coroutine has run on."""
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=60))
    await waiters.add("a1", stock)
    stock.add()
    waiters.hold.wake()
    assert stock.look() is None
    await waiters.settle()
    assert waiters.served == ["a1"]


async def test_a_slot_found_for_one_who_left_at_that_moment_is_given_back() -> None:
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=60))
    await waiters.add("a1", stock)
    stock.add()
    slot = stock.free[0]
    waiters.hold.wake()
    waiters.tasks["a1"].cancel()
    await waiters.settle()
    assert stock.given_back == [slot]
    assert waiters.served == []


async def test_who_leaves_is_not_waited_for() -> None:
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=60))
    await waiters.add("a1", stock)
    await waiters.add("a2", stock)
    waiters.tasks["a1"].cancel()
    await waiters.settle()
    stock.add()
    waiters.hold.wake(most=1)
    await waiters.settle()
    assert waiters.served == ["a2"]


async def test_a_look_that_knows_it_is_vain_ends_the_waiting_of_that_one() -> None:
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=60))

    def vain() -> Slot | None:
        raise ModelNotFound("gone")

    await waiters.add("a1", stock, vain)
    await waiters.add("b1", stock)
    stock.add()
    waiters.hold.wake(most=1)
    await waiters.settle()
    assert waiters.served == ["b1"]
    with pytest.raises(ModelNotFound):
        await waiters.tasks["a1"]


async def test_one_who_left_as_it_was_told_that_it_is_vain_is_no_error() -> None:
    """What it was told is nobody's to hear any more, and is no unheard exception."""
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=60))
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, e: faults.append(e))

    def vain() -> Slot | None:
        raise ModelNotFound("gone")

    await waiters.add("a1", stock, vain)
    waiters.hold.wake()
    waiters.tasks["a1"].cancel()
    await waiters.end()
    assert not faults


async def test_who_waited_too_long_gets_nothing() -> None:
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=0.01))
    await waiters.add("a1", stock)
    await waiters.tasks["a1"]
    stock.add()
    waiters.hold.wake()
    assert waiters.served == ["not a1"]
    assert len(stock.free) == 1
    assert len(waiters.hold) == 0


async def test_all_who_wait_can_be_sent_away() -> None:
    stock, waiters = Stock(), Waiters(HoldQueue(size=10, timeout=60))
    for name in ("a1", "b1", "a2"):
        await waiters.add(name, stock)
    waiters.hold.end(Draining("Enough."))
    assert len(waiters.hold) == 0
    for task in waiters.tasks.values():
        with pytest.raises(Draining):
            await task


async def test_a_full_queue_says_so_until_somebody_leaves() -> None:
    stock, waiters = Stock(), Waiters(HoldQueue(size=2, timeout=60))
    await waiters.add("a1", stock)
    assert not waiters.hold.full
    await waiters.add("b1", stock)
    assert waiters.hold.full
    stock.add()
    waiters.hold.wake()
    assert not waiters.hold.full
    await waiters.end()


def test_a_queue_without_a_time_takes_nobody() -> None:
    assert HoldQueue(size=10, timeout=0).full
