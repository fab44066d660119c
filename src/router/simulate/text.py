"""Text and tokens of the simulated model.

A token is one byte of UTF-8, so that /tokenize and /detokenize undo each other; the
answer is a walk through a few words that starts where the model's name says, so that
two models (or a model and its adapter) answer differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

_WORDS = (
    *("a", "worker", "joins", "the", "fleet", "late", "and", "takes", "its", "share"),
    *("while", "another", "leaves", "so", "no", "request", "is", "lost", "on"),
    *("this", "way", "to", "that", "model"),
)


def tokenize(text: str) -> list[int]:
    return list(text.encode())


def detokenize(tokens: Sequence[int]) -> str:
    """Raises ValueError for a number that is not a byte."""
    return bytes(tokens).decode(errors="replace")


def count_tokens(value: object) -> int:
    """Tokens of a prompt: a text, token ids, or any nesting of messages and parts."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):
        if value and isinstance(value[0], int):
            return len(value)
        return sum(map(count_tokens, value))
    if isinstance(value, dict):
        return count_tokens(value.get("content", value.get("text", "")))
    return 0


def pieces(model: str) -> Iterator[str]:
    """The model's answer, piece by piece, without end."""
    number = crc32(model.encode())
    space = ""
    while True:
        yield space + _WORDS[number % len(_WORDS)]
        number += 1
        space = " "


def flatten(value: object) -> str:
    """The text that `count_tokens` counts, of messages and parts in any nesting."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(flatten, value))
    if isinstance(value, dict):
        return flatten(value.get("content", value.get("text", "")))
    return ""
