"""Feeds the wire code with what libFuzzer (atheris) makes of the hostile corpus.

    python -m fuzz.wire [options of libFuzzer, such as -max_total_time=600]

What is fed and what must hold is in tests/http1/targets.py. The other parsers are what
guides the fuzzer to new inputs: it sees which lines of theirs an input reaches.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

WORDS = (
    "HTTP/1.1", "HTTP/1.0", "HTTP/1.1 200 OK", "GET ", "POST ", "HEAD ", "\r\n",
    "\r\n\r\n", "Host: r\r\n", "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n", "Connection: close\r\n",
    "Connection: keep-alive\r\n", "Upgrade: websocket\r\n",
    "Expect: 100-continue\r\n", "5\r\nhello\r\n", "0\r\n\r\n", "http://r", "chunked",
    '{"model":', '"m"}', "\\u006d", "[[", "]]",
)  # fmt: skip


def main() -> None:
    """Fuzzes until it is stopped, or something does not hold."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["h11", "tests.http1"]):
        targets = importlib.import_module("tests.http1.targets")
        seeds = importlib.import_module("tests.http1.test_targets").SEEDS
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number, seed in enumerate(seeds):
            for target in range(len(targets.TARGETS)):
                data = bytes([target, 255]) + seed
                Path(folder, f"{target}-{number}").write_bytes(data)
        words = Path(folder, "words")
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS))
        options = [f"-dict={words}", "-max_len=4096", *sys.argv[1:], folder]
        atheris.Setup([sys.argv[0], *options], targets.one)
        atheris.Fuzz()


def _escaped(word: str) -> str:
    """As libFuzzer's dictionaries have it."""
    return "".join(
        c if c.isalnum() or c in " /.:-" else f"\\x{ord(c):02x}" for c in word
    )


if __name__ == "__main__":
    main()
