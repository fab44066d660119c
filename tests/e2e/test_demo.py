"""`router demo`, as somebody would try it: into a pipe, on a terminal, ended early."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.http import RawClient, ask
from tests.support.ports import free_port


@contextmanager
def demo(*flags: str, stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    """`router demo` with these flags, killed if it is still there at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "router", "demo", *flags],
        stdout=stdout,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def line_with(process: subprocess.Popen[bytes], pattern: str) -> re.Match[str]:
    """The first line of its output that has this."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(pattern, line.decode()):
            return match
    raise AssertionError(f"the demo ended without {pattern!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_tells_until_a_signal_ends_all_of_it(
    number: signal.Signals,
) -> None:
    with demo("--port", str(free_port()), stdout=subprocess.PIPE) as process:
        port = int(line_with(process, r"http://127\.0\.0\.1:(\d+)")[1])
        assert line_with(process, r"curl \S+/v1/chat/completions")
        told = line_with(process, r"ready [1-5]/6 .* answered [1-9]\d*  failed (\d+)")
        assert told[1] == "0"
        workers = ask(port, b"GET /workers HTTP/1.1\r\nHost: x\r\n\r\n")
        assert workers.body.count(b'"status"') == 6
        process.send_signal(number)
        assert process.wait(20) == 0
        with pytest.raises(ConnectionRefusedError):
            RawClient(port)


def test_it_ends_by_itself_after_the_seconds_it_is_given() -> None:
    flags = ("--seconds", "1", "--port", str(free_port()))
    with demo(*flags, stdout=subprocess.PIPE) as process:
        assert process.wait(60) == 0


def test_on_a_terminal_it_shows_the_fleet_as_a_table() -> None:
    ours, theirs = pty.openpty()
    try:
        with demo("--port", str(free_port()), stdout=theirs) as process:
            os.close(theirs)
            shown = ""
            while "comes late" not in shown or "answered" not in shown:
                shown += os.read(ours, 1 << 16).decode(errors="replace")
            for word in ("worker", "status", "ready", "demo-chat", "dies"):
                assert word in shown
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
    finally:
        os.close(ours)


def test_a_port_that_is_taken_is_said_and_ends_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with demo("--port", port, stdout=subprocess.PIPE) as process:
            assert line_with(process, "Error: the router did not start")
            assert process.wait(20) == 1
