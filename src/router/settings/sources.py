"""Where settings are written down: a command line, an environment, a file.

Owns the grammar of each: which words belong to which flag, which environment names
and file keys there are. Knows no setting by name, and does not judge values: that is
the kinds' part.
"""

from __future__ import annotations

import tomllib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from router.settings.kinds import Kind


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting: the name of its field, what it may be, and a line of help."""

    name: str
    kind: Kind
    default: object
    group: str
    help: str

    @property
    def option(self) -> str:
        """As it stands on a command line."""
        return "--" + self.key

    @property
    def key(self) -> str:
        """As it stands in a file; underscores are read as well."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """As it stands in the environment."""
        return "FLEETROUTER_" + self.name.upper()


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where: `--port`, `FLEETROUTER_PORT`, ..."""

    raw: object
    place: str


@dataclass(slots=True)
class Source:
    """What one source gives, by field name, and what is wrong with its form."""

    given: dict[str, Given] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)


def read_argv(flags: Sequence[Flag], argv: Sequence[str]) -> Source:
    """Read `--flag value`, `--flag=value`, `--list a b c` and `--switch`.

    A list given in parts is put together; of a single value given twice the last
    counts, so that a script's line can be overridden at its end. No value of an
    unknown flag is quoted, since it may be a key.
    """
    source = Source()
    options = {flag.option: flag for flag in flags}
    for option, words in _grouped(argv):
        if not option:
            source.mistakes.append(f"unexpected: {' '.join(words)}")
        elif option not in options:
            source.mistakes.append(f"{option}: no such flag{_near(option, options)}")
        else:
            _add_words(source, options[option], words)
    return source


def _grouped(argv: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the words up to the next one; words before the first under ``."""
    option, words = "", list[str]()
    for word in argv:
        if word.startswith("--") and word != "--":
            if option or words:
                yield option, words
            option, equals, value = word.partition("=")
            words = [value] if equals else []
        else:
            words.append(word)
    if option or words:
        yield option, words


def _add_words(source: Source, flag: Flag, words: list[str]) -> None:
    raw: object
    if flag.kind.many:
        before = source.given.get(flag.name)
        raw = [*(before.raw if before and isinstance(before.raw, list) else []), *words]
    elif len(words) == 1:
        raw = words[0]
    elif flag.kind.switch and not words:
        raw = True
    else:
        count = "none" if not words else str(len(words))
        source.mistakes.append(f"{flag.option}: takes one value, {count} given")
        return
    source.given[flag.name] = Given(raw, flag.option)


def read_variables(flags: Sequence[Flag], variables: Mapping[str, str]) -> Source:
    """Read `FLEETROUTER_<FLAG>`; an empty value counts as not set, and other names
    are left alone."""
    source = Source()
    for flag in flags:
        value = variables.get(flag.variable, "")
        if value:
            source.given[flag.name] = Given(value, flag.variable)
    return source


def read_file(flags: Sequence[Flag], path: str) -> Source:
    """Read a TOML file (by its suffix) or a YAML one; a key without a value counts as
    not set."""
    source = Source()
    keys = {flag.key: flag for flag in flags}
    try:
        table = _load(path)
    except OSError as error:
        source.mistakes.append(f"cannot read {path}: {error.strerror}")
        return source
    except (ValueError, yaml.YAMLError) as error:
        source.mistakes.append(f"{path}: {' '.join(str(error).split())}")
        return source
    for written, raw in table.items():
        key = written.replace("_", "-")
        place = f"{written} in {path}"
        if key not in keys:
            source.mistakes.append(f"{place}: no such key{_near(key, keys)}")
        elif keys[key].name in source.given:
            source.mistakes.append(f"{place}: stands twice")
        elif raw is not None:
            source.given[keys[key].name] = Given(raw, place)
    return source


def _load(path: str) -> Mapping[str, object]:
    text = Path(path).read_text(encoding="utf-8")
    if path.endswith(".toml"):
        return tomllib.loads(text)
    table = yaml.load(text, Loader=_UniqueKeys)
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise ValueError("not a mapping of settings")
    return {str(key): value for key, value in table.items()}


class _UniqueKeys(yaml.SafeLoader):
    """YAML where a key that stands twice is an error and not the last one's win."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        seen = set[object]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise ValueError(f"{key.value} stands twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _near(name: str, names: Mapping[str, Flag]) -> str:
    """A suggestion, or nothing."""
    close = get_close_matches(name, names, n=1, cutoff=0.7)
    return f" (did you mean {close[0]}?)" if close else ""
