"""Worker URLs: what is accepted, and the one way each is written.

Owns the normal form that workers are compared and looked up by. Two ways to write one
address must meet in one worker, or it would be there twice. Resolves no names.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from router.errors import BadRequest
from router.fleet.worker import Endpoint

DEFAULT_PORTS = {"http": 80, "https": 443}

#: Names as DNS and container networks use them: letters, digits, `-`, `_`, dots.
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?\Z")
#: base URL, and the rank behind it.
_RANKED = re.compile(r"(.*)@(\d{1,9})\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL in its normal form, and its parts."""

    url: str
    endpoint: Endpoint


def parse(text: str) -> Address:
    """The normal form of a worker's base URL.

    Scheme and host are lower case, the scheme's default port and a trailing slash are
    left out, an IPv6 address is in its shortest form. Raises BadRequest (`url`) for
    anything but http(s)://host[:port].
    """
    if not text.isascii() or any(c <= " " or c == "\x7f" for c in text):
        raise _wrong("holds a blank or a character that is not ASCII")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise _wrong("has a bad port or host") from error
    _check_extent(text, parts)
    if port == 0 or parts.netloc.endswith(":"):
        raise _wrong("has a bad port or host")
    host, shown = _host(parts)
    default = DEFAULT_PORTS[parts.scheme]
    authority = shown if port in (None, default) else f"{shown}:{port}"
    endpoint = Endpoint(host, port or default, parts.scheme == "https", authority)
    return Address(f"{parts.scheme}://{authority}", endpoint)


def lookup(text: str) -> str:
    """The normal form of a URL that is to be looked up: of a base URL or of a rank.

    Text that is no URL is given back as it is, for it will not be found.
    """
    ranked = _RANKED.match(text.removesuffix("/"))
    base, rank = (ranked[1], f"@{int(ranked[2])}") if ranked else (text, "")
    try:
        return parse(base).url + rank
    except BadRequest:
        return text


def rank_url(base_url: str, rank: int) -> str:
    """URL of a data-parallel rank: the base URL is shared, this tells them apart."""
    return f"{base_url}@{rank}"


def _check_extent(text: str, parts: SplitResult) -> None:
    """Refuses what is less or more than scheme, host and port."""
    if parts.scheme not in DEFAULT_PORTS:
        raise _wrong("must start with http:// or https://")
    if _RANKED.match(text.removesuffix("/")):
        raise _wrong("must not name a data-parallel rank; `dp_size` makes the ranks")
    if "@" in parts.netloc:
        raise _wrong("must not hold a user or a password; a key goes into `api_key`")
    if parts.path not in ("", "/"):
        raise _wrong("must be a base URL, without a path such as /v1")
    if "?" in text or "#" in text:
        raise _wrong("must be a base URL, without a query or a fragment")


def _host(parts: SplitResult) -> tuple[str, str]:
    """The host to connect to, and as it stands in a URL."""
    host = parts.hostname or ""
    if "[" in parts.netloc:
        try:
            host = ipaddress.IPv6Address(host).compressed
        except ValueError as error:
            raise _wrong("has a bad IPv6 address") from error
        if "%" in host:
            raise _wrong("has an IPv6 address with a zone")
        return host, f"[{host}]"
    if not _NAME.match(host):
        raise _wrong("has a bad port or host")
    return host, host


def _wrong(what: str) -> BadRequest:
    return BadRequest(f"`url` {what}.", param="url")
