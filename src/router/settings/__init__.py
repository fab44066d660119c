"""What a router runs by: frozen values from flags, environment and file.

Owns reading them, and is the only reader of the environment. A flag beats the
environment, the environment beats the file, and every mistake of all three is named in
one go. Objects are never given Settings but the values they need.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.settings.kinds import Mistake, Secret
from router.settings.rules import broken
from router.settings.sources import Given, Source, read_argv, read_file, read_variables
from router.settings.table import FLAGS, Settings

__all__ = ["FLAGS", "Reading", "Settings", "SettingsError", "admin_key", "load", "read"]

_BY_NAME = {flag.name: flag for flag in FLAGS}
#: What Kubernetes sets for a Service named fleetrouter: FLEETROUTER_PORT=tcp://...
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://")


class SettingsError(Exception):
    """The settings are not good; `mistakes` names everything that is wrong."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = tuple(mistakes)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sources say: the settings as far as they are good (a bad value is left
    at its default), where each was written, and every mistake."""

    settings: Settings
    given: Mapping[str, Given]
    mistakes: tuple[str, ...]


def load(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a command line. Raises SettingsError."""
    reading = read(argv, environ)
    if reading.mistakes:
        raise SettingsError(reading.mistakes)
    return reading.settings


def read(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Reading:
    """Read a command line, an environment (the process's own if None) and the file
    that either names."""
    environ = os.environ if environ is None else environ
    flags = read_argv(FLAGS, argv)
    variables = read_variables(FLAGS, _without_kubernetes(environ))
    given = variables.given | flags.given
    sources = [_file(given), variables, flags]

    mistakes = [mistake for source in sources for mistake in source.mistakes]
    given = {name: item for source in sources for name, item in source.given.items()}
    values = dict[str, object]()
    for name, item in given.items():
        try:
            values[name] = _BY_NAME[name].kind.parse(item.raw)
        except Mistake as mistake:
            mistakes.append(f"{item.place}: {mistake}")
    settings = Settings(**values)  # type: ignore[arg-type]
    mistakes += broken(settings, given, given.keys() - values.keys())
    return Reading(settings, given, tuple(mistakes))


def admin_key(raw: str | None, environ: Mapping[str, str] | None = None) -> str | None:
    """The admin key that a client of a running router uses: as it was given, or from
    the environment. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    flag = _BY_NAME["admin_api_key"]
    place, raw = (
        (flag.option, raw) if raw else (flag.variable, environ.get(flag.variable))
    )
    try:
        return Secret().parse(raw) if raw else None
    except Mistake as mistake:
        raise SettingsError([f"{place}: {mistake}"]) from None


def _without_kubernetes(environ: Mapping[str, str]) -> Mapping[str, str]:
    name = _BY_NAME["port"].variable
    if _KUBERNETES_PORT.match(environ.get(name, "")):
        return {key: value for key, value in environ.items() if key != name}
    return environ


def _file(given: Mapping[str, Given]) -> Source:
    """What the file says that a flag or the environment names; nothing without one."""
    flags = [flag for flag in FLAGS if flag.name != "config"]
    path = given["config"].raw if "config" in given else ""
    return read_file(flags, path) if isinstance(path, str) and path else Source()
