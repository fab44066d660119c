"""Bytes arrive in the order in which they came, whoever takes them how slowly."""

from __future__ import annotations

import threading

from tests.http1.messages import GET, HEAD
from tests.http1.relay import Wire
from tests.support.raw_worker import RawConnection


def test_bytes_keep_their_order_at_a_client_that_reads_in_bursts(wire: Wire) -> None:
    """What the system takes only a part of is never overtaken by what comes next."""
    whole = b"".join(number.to_bytes(4) for number in range(2 << 20))

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(whole))
        for at in range(0, len(whole), 30_001):
            connection.send(whole[at : at + 30_001])

    client = wire(script).connect()
    client.send(GET)
    got = b""
    while len(got.partition(b"\r\n\r\n")[2]) < len(whole):
        got += client.read_some()
        threading.Event().wait(0.002)
    assert got.partition(b"\r\n\r\n")[2] == whole
