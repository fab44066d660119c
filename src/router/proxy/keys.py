"""The keys of clients: who may ask, and for which models.

Owns what a list of keys means and the look-up of one. Keys are kept as SHA-256
digests: they are random, so that a digest tells nothing of its key, and the time that
a look-up by digest takes tells nothing of how much of a key was guessed right. Reads
no file.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from router.errors import BadRequest, ModelNotAllowed, Unauthorized
from router.http1.head import RequestHead

_BEARER = b"bearer "


class Client(NamedTuple):
    """Whose key it is."""

    digest: bytes
    #: The models that the key is for; None: all.
    models: frozenset[str] | None

    def check(self, model: str | None) -> None:
        """Raises ModelNotAllowed for a model that the key is not for.

        None: the request is for no model that could be told, which a limited key does
        not reach either.
        """
        if self.models is not None and model not in self.models:
            what = "a request without a model" if model is None else f"`{model}`"
            raise ModelNotAllowed(f"This API key is not for {what}.")


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    #: For the people who keep the file.
    name: str | None = None
    key: Annotated[str, Meta(pattern=r"^[\x21-\x7e]+$")] | None = None
    key_sha256: Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    models: list[str] | None = None


def parse(entries: Iterable[object]) -> dict[bytes, Client]:
    """The clients of a list of `{name?, key or key_sha256, models?}`, by digest.

    Raises BadRequest naming the entry by its number and no key.
    """
    clients: dict[bytes, Client] = {}
    for number, found in enumerate(entries, 1):
        try:
            entry = msgspec.convert(found, _Entry)
        except msgspec.ValidationError as error:
            raise BadRequest(f"Entry {number}: {error}.") from None
        if entry.key is not None and entry.key_sha256 is None:
            digest = hashlib.sha256(entry.key.encode()).digest()
        elif entry.key_sha256 is not None and entry.key is None:
            digest = bytes.fromhex(entry.key_sha256)
        else:
            raise BadRequest(f"Entry {number}: needs one of `key` and `key_sha256`.")
        if digest in clients:
            raise BadRequest(f"Entry {number}: its key stands twice.")
        models = None if entry.models is None else frozenset(entry.models)
        clients[digest] = Client(digest, models)
    return clients


class ClientKeys:
    """The keys that are good now; none until they were told."""

    def __init__(self) -> None:
        self._clients: Mapping[bytes, Client] = {}

    def replace(self, clients: Mapping[bytes, Client]) -> None:
        """These keys are good from now on, and no others."""
        self._clients = clients

    def admit(self, head: RequestHead) -> Client:
        """Whose key a request has. Raises Unauthorized."""
        sent = head.header(b"authorization") or b""
        if sent[: len(_BEARER)].lower() == _BEARER:
            digest = hashlib.sha256(sent[len(_BEARER) :].strip()).digest()
            client = self._clients.get(digest)
            if client is not None and hmac.compare_digest(client.digest, digest):
                return client
        raise Unauthorized("This needs a good API key: Authorization: Bearer KEY.")
