"""A worker that reads with an independent parser (h11) and writes down what it saw."""

from __future__ import annotations

import h11

from tests.hostile.case import Seen
from tests.support.raw_worker import RawConnection

_MODELS = b'{"object":"list","data":[{"id":"m","object":"model","root":"m"}]}'
#: What the router itself asks.
_PROBES = {b"/health": b"", b"/v1/models": _MODELS}


class Recorder:
    """The script of a RawWorker: serves model `m`, answers each request its target."""

    def __init__(self) -> None:
        #: Whole requests, in the order they came; probes left out.
        self.seen: list[Seen] = []
        #: What the parser would not take. Of a request that broke off there is nothing.
        self.wrong: list[str] = []

    def take(self) -> list[Seen]:
        """What was seen since the last time."""
        seen, self.seen = self.seen, []
        return seen

    def __call__(self, connection: RawConnection) -> None:
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        try:
            while self._serve_one(parser, connection):
                parser.start_next_cycle()
        except h11.RemoteProtocolError as error:
            self.wrong.append(f"{error}: {connection.received[-300:]!r}")

    def _serve_one(self, parser: h11.Connection, connection: RawConnection) -> bool:
        """One request and its answer; whether there may be another."""
        request, body = (
            h11.Request(method="GET", target="/", headers=[("Host", "")]),
            b"",
        )
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                data = connection.read_some()
                if not data:
                    return False
                parser.receive_data(data)
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                break
        if isinstance(event, h11.EndOfMessage):
            connection.send(self._answer(parser, request, body))
        return parser.our_state is h11.DONE

    def _answer(
        self, parser: h11.Connection, request: h11.Request, body: bytes
    ) -> bytes:
        target = bytes(request.target)
        if target not in _PROBES:
            self.seen.append(Seen(target, body))
        said = _PROBES.get(target, target)
        length = [("Content-Length", str(len(said)))]
        events: list[h11.Event] = [h11.Response(status_code=200, headers=length)]
        if request.method != b"HEAD":
            events.append(h11.Data(data=said))
        return b"".join(parser.send(e) or b"" for e in (*events, h11.EndOfMessage()))
