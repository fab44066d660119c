"""Channels, doors, listening sockets, shared memory: each by itself."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import closing

import msgspec
import pytest

from router._core import Slots
from router.processes import listeners
from router.processes.channel import Channel, read_boot
from router.processes.door import Door, through
from router.processes.memory import Memory
from router.processes.messages import Applied, Ask, Boot, Down, Drain, Up
from router.processes.shares import Bound, Shares
from tests.processes.common import LINUX
from tests.support.ports import free_port

pytestmark = LINUX
BOOT = Boot(1, 2, 3, 4, 5, (6, 7), b"settings")


class End:
    """One end of a channel, and what came."""

    def __init__(self, direction: object) -> None:
        self.came: list[object] = []
        self.lost = asyncio.Event()
        decoder: msgspec.msgpack.Decoder[object] = msgspec.msgpack.Decoder(direction)
        self.channel: Channel[object] = Channel(
            decoder, self.came.append, self.lost.set
        )

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.came) < count:
                await asyncio.sleep(0.005)


async def test_messages_come_whole_and_in_order_and_the_end_is_seen() -> None:
    up, down = End(Up), End(Down)
    for end, sock in zip((up, down), socket.socketpair(), strict=True):
        await end.channel.open(sock)
    sent = [Applied(number) for number in range(2000)]
    for message in sent:
        down.channel.send(message)
    up.channel.send(Ask(1))
    up.channel.send(Drain(2.5))
    await up.until(2000)
    await down.until(2)
    assert up.came == sent
    assert down.came == [Ask(1), Drain(2.5)]
    down.channel.close()
    await asyncio.wait_for(up.lost.wait(), 10)
    up.channel.send(Ask(2))  # to nobody, and no error
    assert down.lost.is_set()


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_a_message_may_come_in_any_pieces(size: int) -> None:
    end = End(Up)
    one, other = socket.socketpair()
    with other:
        await end.channel.open(one)
        data = b""
        for number in range(3):
            encoded = msgspec.msgpack.encode(Applied(number))
            data += len(encoded).to_bytes(4, "little") + encoded
        for at in range(0, len(data), size):
            other.sendall(data[at : at + size])
            await asyncio.sleep(0)
        await end.until(3)
    await asyncio.wait_for(end.lost.wait(), 10)
    assert end.came == [Applied(0), Applied(1), Applied(2)]


def test_the_first_message_is_read_before_there_is_a_loop() -> None:
    one, other = socket.socketpair()
    with one, other:
        encoded = msgspec.msgpack.encode(BOOT)
        one.sendall(len(encoded).to_bytes(4, "little") + encoded + b"rest")
        assert read_boot(other) == BOOT
        assert other.recv(10) == b"rest"
        one.sendall(b"\x05")
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            read_boot(other)


async def test_a_connection_goes_through_the_door() -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)
            self.transport.close()

    door = Door(Echo)
    with closing(door):
        hand_over = through(door.outside)
        for word in (b"one", b"two", b"three"):
            ours, theirs = socket.socketpair()
            await hand_over(theirs)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            writer.write(word)
            assert await asyncio.wait_for(reader.read(), 10) == word
            writer.close()
            await writer.wait_closed()


def test_each_process_has_sockets_of_its_own_on_one_port() -> None:
    lists = listeners.bind("127.0.0.1", 0, 3, 16)
    ports = {sock.getsockname()[1] for sockets in lists for sock in sockets}
    assert [len(sockets) for sockets in lists] == [1, 1, 1]
    assert len(ports) == 1
    (port,) = ports
    with pytest.raises(OSError, match="in use"):
        listeners.bind("127.0.0.1", port, 2, 16)
    listeners.close(lists)
    listeners.close(lists)
    listeners.close(listeners.bind("127.0.0.1", port, 2, 16))


def test_a_port_that_somebody_listens_at_is_taken() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="use"):
        listeners.bind("127.0.0.1", port, 2, 16)


def test_memory_is_the_same_for_all_that_have_its_descriptor() -> None:
    one = Memory.create(2)
    other = Memory(os.dup(one.fd), 2)
    with closing(one), closing(other):
        one.rows[1, 70_000] = 5
        one.totals[1, 0] = 6
        assert other.rows[1, 70_000] == 5
        assert other.rows.sum() == 5
        other.forget(1)
        assert one.rows.sum() == one.totals.sum() == 0


async def test_a_bound_is_one_for_all_processes() -> None:
    memory = Memory.create(2)
    held = [30, 50]
    allowed = [0, 0]

    def shares(row: int) -> Shares:
        bound = Bound(
            100, lambda: held[row], lambda most: allowed.__setitem__(row, most)
        )
        none = Bound(10, lambda: 0, lambda most: None)
        slots = Slots(rows=memory.rows, row=row)
        return Shares(memory, row, slots, (bound, none), lambda: 0, lambda: None)

    with closing(memory):
        both = [shares(row) for row in range(2)]
        for _ in range(2):
            for one in both:
                one.start()
                one.stop()
        assert allowed == [50, 70]
        held[1] = 120
        both[1].start()
        both[1].stop()
        both[0].start()
        both[0].stop()
        assert allowed[0] == 0
        memory.forget(1)
        both[0].start()
        both[0].stop()
        assert allowed[0] == 100
