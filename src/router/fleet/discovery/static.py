"""Workers named on the command line.

Turns --worker-urls and the data-parallel flags into registrations. Starts nothing and
asks nobody: a worker that is not up yet is registered all the same and joins late.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.errors import BadRequest
from router.fleet import address
from router.fleet.worker import Registration


def registrations(
    urls: Sequence[str],
    *,
    dp_size: int = 1,
    dp_start_rank: int | None = None,
) -> tuple[Registration, ...]:
    """A registration for each URL, in their order.

    `dp_size`: data-parallel ranks behind each URL; each becomes a worker URL@rank.
    `dp_start_rank`: None: every URL is a deployment of its own, with ranks from 0. A
    number: the URLs are the nodes of one deployment behind hybrid load balancing, whose
    ranks are numbered across the nodes; this is the first rank of the first URL. With
    ranks from 0 on each node, every node but the first would refuse its requests.

    Raises BadRequest naming the URL, also for one that stands there twice.
    """
    found: dict[str, Registration] = {}
    for position, text in enumerate(urls):
        try:
            url = address.parse(text).url
        except BadRequest as error:
            raise BadRequest(f"{text!r}: {error.message}", param="url") from error
        if url in found:
            raise BadRequest(f"{text!r} is given twice.", param="url")
        first = 0 if dp_start_rank is None else dp_start_rank + position * dp_size
        plain = dp_size == 1 and dp_start_rank is None
        found[url] = Registration(
            url=url,
            dp_size=None if plain else dp_size,
            dp_start_rank=first,
        )
    return tuple(found.values())
