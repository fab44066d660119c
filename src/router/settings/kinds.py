"""What a setting may be: the kinds of values, each with its bounds.

Owns turning what was written (a flag's words, an environment value, a value of a YAML
or TOML file) into a value, and the words that say what is wrong with it. Knows no
setting by name.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from router.errors import BadRequest
from router.fleet import address
from router.settings.cores import cores

#: Whether there can be several processes: elsewhere the kernel does not spread
#: connections over sockets of one port, and memory without a name has another shape.
_SEVERAL = sys.platform == "linux"
#: RFC 9110, section 5.6.2: what a header's name is made of.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
#: Headers that frame or carry the message itself; none of them can hold an id.
_RESERVED_HEADERS = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)


class Mistake(ValueError):
    """What is wrong with a value. Never quotes a secret."""


class Kind:
    """One kind of value.

    `parse` takes a string, or what a file held (number, boolean, list, mapping), and
    raises Mistake. A kind that is `many` is also given the list of a flag's words; a
    `switch` is given True where its flag stands alone.
    """

    metavar = ""
    many = False
    switch = False
    secret = False

    def parse(self, raw: object) -> object:
        raise NotImplementedError

    def shape(self) -> str:
        """What stands for a value in the help."""
        return self.metavar

    def show(self, value: object) -> str:
        """The value as `router check` and the help print it."""
        return "none" if value is None else str(value)


@dataclass(frozen=True)
class Integer(Kind):
    """A whole number from `low` to `high`, both included."""

    low: int
    high: int
    metavar = "N"

    def parse(self, raw: object) -> int:
        if isinstance(raw, str) and re.fullmatch(r"[+-]?[0-9]{1,19}", raw):
            raw = int(raw)
        if not isinstance(raw, int) or isinstance(raw, bool):
            raise Mistake(f"{raw!r} is not a whole number")
        if not self.low <= raw <= self.high:
            raise Mistake(f"{raw} is not between {self.low} and {self.high}")
        return raw


class Processes(Kind):
    """How many; `auto`: one a core that this process may use."""

    metavar = "N|auto"
    MOST = 64

    def parse(self, raw: object) -> int:
        if raw == "auto":
            return min(cores(), self.MOST) if _SEVERAL else 1
        if isinstance(raw, str) and not re.fullmatch(r"[+-]?[0-9]{1,19}", raw):
            raise Mistake(f"{raw!r} is neither a number nor auto")
        count = Integer(1, self.MOST).parse(raw)
        if count > 1 and not _SEVERAL:
            raise Mistake(f"{count} processes need Linux")
        return count


@dataclass(frozen=True)
class Number(Kind):
    """A number from `low` to `high`; `above`: `low` itself is not allowed."""

    low: float
    high: float
    above: bool = False
    metavar = "X"

    def parse(self, raw: object) -> float:
        if isinstance(raw, str) and _DECIMAL.fullmatch(raw):
            raw = float(raw)
        if not isinstance(raw, int | float) or isinstance(raw, bool):
            raise Mistake(f"{raw!r} is not a number")
        value = float(raw)
        if not math.isfinite(value):
            raise Mistake(f"{raw!r} is not a finite number")
        if not self.low <= value <= self.high or (self.above and value == self.low):
            bounds = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
            raise Mistake(f"{raw} is not {bounds} and at most {self.high:g}")
        return value

    def show(self, value: object) -> str:
        return f"{value:g}" if isinstance(value, float) else super().show(value)


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few words."""

    words: tuple[str, ...]

    def shape(self) -> str:
        return "|".join(self.words)

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or raw not in self.words:
            raise Mistake(f"{raw!r} is none of {', '.join(self.words)}")
        return raw


class Switch(Kind):
    """On or off; the flag alone means on."""

    switch = True
    _WORDS = MappingProxyType(
        {"true": True, "1": True, "yes": True, "on": True}
        | {"false": False, "0": False, "no": False, "off": False}
    )

    def parse(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in self._WORDS:
            return self._WORDS[raw.lower()]
        raise Mistake(f"{raw!r} is neither true nor false")

    def show(self, value: object) -> str:
        return "on" if value else "off"


@dataclass(frozen=True)
class Text(Kind):
    """A string that a pattern matches whole; `expected` says so in words."""

    pattern: str
    expected: str
    metavar: str = "TEXT"

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise Mistake(f"{raw!r} is not text (a file needs quotes around it)")
        if not re.fullmatch(self.pattern, raw):
            raise Mistake(f"{raw!r} is not {self.expected}")
        return raw


class Secret(Kind):
    """A key, or `@FILE` that holds it. Printable ASCII, since it goes into a header."""

    metavar = "KEY|@FILE"
    secret = True

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise Mistake("the key is not text (a file needs quotes around it)")
        key = self._read(raw[1:]) if raw.startswith("@") else raw
        if not re.fullmatch(r"[!-~]+", key):
            raise Mistake("the key is empty or holds spaces or unprintable characters")
        return key

    @staticmethod
    def _read(path: str) -> str:
        try:
            return Path(path).read_text(encoding="ascii").strip("\r\n")
        except OSError as error:
            raise Mistake(f"cannot read {path}: {error.strerror}") from None
        except ValueError:
            raise Mistake(f"{path} holds more than ASCII text") from None

    def show(self, value: object) -> str:
        return "none" if value is None else "set (not shown)"


class WorkerURL(Kind):
    """The base URL of a worker, in the one way that the fleet writes it."""

    metavar = "URL"

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise Mistake(f"{raw!r} is not a URL")
        if "@" in raw:  # not quoted: what stands before it may be a password
            raise Mistake("a URL that holds a user, a password or a rank")
        try:
            return address.parse(raw).url
        except BadRequest as error:
            raise Mistake(f"{raw!r} is not a worker's URL: {error.message}") from None


class HeaderName(Kind):
    """A header's name, in lower case."""

    metavar = "HEADER"

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or not _TOKEN.fullmatch(raw):
            raise Mistake(f"{raw!r} is not a header's name")
        name = raw.lower()
        if name in _RESERVED_HEADERS:
            raise Mistake(f"{name} belongs to the connection and cannot hold an id")
        return name


@dataclass(frozen=True)
class Words(Kind):
    """Several values of one kind, none twice.

    A flag's words, a list, or one string split at spaces and commas.
    """

    item: Kind
    least: int = 0
    many = True

    def shape(self) -> str:
        return f"{self.item.shape()}..."

    def parse(self, raw: object) -> tuple[object, ...]:
        words, mistakes = list[object](), list[str]()
        for word in _words(raw):
            try:
                words.append(self.item.parse(word))
            except Mistake as mistake:
                mistakes.append(str(mistake))
        if mistakes:
            raise Mistake("; ".join(mistakes))
        twice = [str(word) for word, count in Counter(words).items() if count > 1]
        if twice:
            raise Mistake(f"{', '.join(twice)} stands twice")
        if len(words) < self.least:
            raise Mistake(f"at least {self.least} needed")
        return tuple(words)

    def show(self, value: object) -> str:
        return (
            " ".join(map(str, value)) if isinstance(value, tuple) and value else "none"
        )


class Aliases(Kind):
    """`ALIAS=MODEL`, several; in a file also a mapping. An alias names a model, not
    another alias."""

    many = True
    metavar = "ALIAS=MODEL..."

    def parse(self, raw: object) -> Mapping[str, str]:
        pairs = raw.items() if isinstance(raw, Mapping) else map(_pair, _words(raw))
        aliases: dict[str, str] = {}
        for alias, model in pairs:
            if not isinstance(alias, str) or not isinstance(model, str):
                raise Mistake(f"{alias!r}: {model!r} are not two names")
            if not alias or not model or alias == model:
                raise Mistake(f"{alias}={model} is not ALIAS=MODEL with two names")
            if aliases.setdefault(alias, model) != model:
                raise Mistake(f"{alias} is given two models")
        chained = sorted(aliases.keys() & aliases.values())
        if chained:
            raise Mistake(f"{', '.join(chained)} is an alias and a model at once")
        return MappingProxyType(aliases)

    def show(self, value: object) -> str:
        pairs = value.items() if isinstance(value, Mapping) else ()
        return " ".join(f"{alias}={model}" for alias, model in pairs) or "none"


def _words(raw: object) -> list[object]:
    if isinstance(raw, str):
        return list(re.findall(r"[^\s,]+", raw))
    if isinstance(raw, list):
        return raw
    if isinstance(raw, int):
        return [raw]
    raise Mistake(f"{raw!r} is neither a list nor words")


def _pair(word: object) -> tuple[str, str]:
    if not isinstance(word, str) or "=" not in word:
        raise Mistake(f"{word!r} is not ALIAS=MODEL")
    alias, _, model = word.partition("=")
    return alias, model
