"""The corpus, second half: lengths, codings, chunks, pipelines, bodies."""

from __future__ import annotations

from tests.hostile.case import (
    NEXT,
    POISON,
    Case,
    Seen,
    chunked,
    coded,
    get,
    post,
    refused,
    served,
    sized,
    start,
    then_refused,
)

LENGTH = b"Content-Length: 5"
CHUNKED = b"Transfer-Encoding: chunked"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"
WHOLE = Seen(b"/x", b"hello")
JSON = b"Content-Type: application/json"


def both(*lines: bytes, body: bytes = b"0\r\n\r\n" + POISON) -> bytes:
    """A body that ends at one place by its length and at another by its chunks."""
    return post(*lines, body=body)


def json(body: bytes) -> bytes:
    return post(JSON, b"Content-Length: %d" % len(body), body=body)


BODIES: dict[str, list[Case]] = {
    "CL.TE": [
        refused("length, then chunks", both(b"Content-Length: 44", CHUNKED)),
        refused("a length of nothing", both(b"Content-Length: 0", CHUNKED)),
        refused("the length that is right", both(b"Content-Length: 5", CHUNKED,
                body=b"0\r\n\r\n")),
        refused("in HTTP/1.0", start(b"POST /x HTTP/1.0", LENGTH, CHUNKED) + HELLO),
        refused("fields between them", both(b"Content-Length: 44", b"A: b", CHUNKED)),
        refused("names in other cases", both(b"CONTENT-length: 44",
                b"tRANSFER-encoding: CHUNKED")),
        refused("a tab before the coding", both(b"Content-Length: 44",
                b"Transfer-Encoding:\tchunked")),
        refused("both in Connection", both(b"Content-Length: 44", CHUNKED,
                b"Connection: content-length, transfer-encoding")),
        refused("of a GET", get(b"Content-Length: 5", CHUNKED) + HELLO),
    ],
    "TE.CL": [
        refused("chunks, then length", both(CHUNKED, b"Content-Length: 4",
                body=b"21\r\n" + POISON + b"\r\n0\r\n\r\n")),
        refused("a length of nothing", both(CHUNKED, b"Content-Length: 0")),
        refused("a length that is none", both(CHUNKED, b"Content-Length: x")),
        refused("an empty length", both(CHUNKED, b"Content-Length:")),
        refused("an unknown coding", both(b"Transfer-Encoding: cow", LENGTH)),
        refused("no coding", both(b"Transfer-Encoding: identity", LENGTH)),
        refused("an empty coding", both(b"Transfer-Encoding:", LENGTH)),
    ],
    "TE.TE": [
        refused("twice", post(CHUNKED, CHUNKED, body=HELLO)),
        refused("with another one behind", post(CHUNKED, b"Transfer-Encoding: x",
                body=HELLO)),
        refused("with another one before", post(b"Transfer-encoding: x", CHUNKED,
                body=HELLO)),
        *(
            refused(f"{coding!r}", coded(coding))
            for coding in (
                b"xchunked", b"chunkedx", b"chunked, identity", b"identity, chunked",
                b"chunked, chunked", b"gzip, chunked", b"chunked,", b",chunked",
                b"chunked;q=1", b'"chunked"', b"'chunked'", b"chunked chunked",
                b"chun\xe2\x84\xaaed", b"\x0bchunked", b"chunked\x0b", b"chunked\x00",
                b"chunked ", b"chunked\t", b"\xa0chunked", b"chunked\x85",
                b"chunked\r\n ,identity", b"\r\n chunked",
            )
        ),
        refused("space before the colon", post(b"Transfer-Encoding : chunked")),
        refused("space before the name", get(b"A: b", b" Transfer-Encoding: chunked")),
        refused("behind a line feed", post(b"A: b\n" + CHUNKED, LENGTH, body=HELLO)),
        refused("behind a carriage return", post(b"A: b\r" + CHUNKED, body=HELLO)),
        refused("a nul in the name", post(b"Transfer-Encoding\x00: chunked")),
        refused("in HTTP/1.0", start(b"POST /x HTTP/1.0", CHUNKED) + HELLO),
        served("capitals", coded(b"CHUNKED"), WHOLE),
        served("tabs before it", coded(b"\t \tchunked"), WHOLE),
    ],
    "length": [
        refused("twice the same", post(LENGTH, LENGTH, body=b"hello")),
        refused("twice", post(LENGTH, b"content-length: 6", body=b"hello!")),
        refused("thrice", post(LENGTH, LENGTH, LENGTH, body=b"hello")),
        *(
            refused(f"{length!r}", sized(length))
            for length in (
                b"5, 5", b"5,5", b"5,", b",5", b"5;5", b"5 5", b"+5", b"-5", b"-0",
                b"0x5", b"0b1", b"5e0", b"5.0", b"5_0", b"", b"five", b"\xb5",
                b"\xef\xbc\x95", b"\xd9\xa5", b'"5"', b"5\x00", b"5 ", b"5\t",
                b"9223372036854775808", b"18446744073709551621", b"9" * 400,
                b"00000000000000000005",
            )
        ),
        refused("more than is taken", sized(b"999999999999999999"), 413),
        served("leading zeros", sized(b"005"), WHOLE),
        served("of a GET", get(LENGTH) + b"hello", WHOLE),
        served("nothing, and a request behind", sized(b"0", NEXT),
               Seen(b"/x"), Seen(b"/next")),
        then_refused("shorter than what comes", sized(b"5", b"hello!!\r\n\r\n"), WHOLE),
    ],
    "chunks": [
        *(
            refused(f"{broken!r}", chunked(broken))
            for broken in (
                b"\r\n", b"G\r\n", b"-1\r\nx", b"+5\r\nhello\r\n", b"0x5\r\nhello\r\n",
                b" 5\r\nhello\r\n", b"5 \r\nhello\r\n", b"\t5\r\nhello\r\n",
                b"5\nhello\r\n0\r\n\r\n", b"5\rhello\r\n0\r\n\r\n",
                b"5 ;a\r\nhello\r\n", b"5;a\nb\r\nhello\r\n", b"5;a\x00\r\nhello\r\n",
                b"5;a\rb\r\nhello\r\n", b"ffffffffffffffff\r\nhello\r\n",
                b"10000000000000005\r\nhello\r\n", b"0000000000000005\r\nhello\r\n",
                b"5\r\nhello!\r\n0\r\n\r\n", b"5\r\nhell\r\n0\r\n\r\n",
                b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"0\r\n\n" + POISON,
                b"0\r\n\rX", b"0\r\nA\r\n\r\n", b"0\r\nA : b\r\n\r\n",
                b"0\r\nA: b\r\n c\r\n\r\n", b"0\r\nA: b\nC: d\r\n\r\n",
                b"0\r\nA: b\x00\r\n\r\n", b"0\r\n: b\r\n\r\n", b"5,5\r\nhello\r\n",
                b"\xef\xbc\x95\r\nhello\r\n", b"5;%b" % (b"a" * 5000),
            )
        ),
        refused("trailers of 64 KiB", chunked(b"0\r\n" + b"A: b\r\n" * 12_000)),
        served("extensions", chunked(b'5;a="\\"b";c\r\nhello\r\n0;d\r\n\r\n'), WHOLE),
        served("capitals and zeros", chunked(b"0005\r\nhello\r\n000\r\n\r\n"), WHOLE),
        served("trailers that frame", chunked(b"5\r\nhello\r\n0\r\n"
               b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\nHost: e\r\n\r\n"),
               WHOLE),
        served("a request inside", chunked(b"21\r\n%b\r\n0\r\n\r\n" % POISON),
               Seen(b"/x", POISON)),
        served("an end inside", chunked(b"5\r\n0\r\n\r\n\r\n0\r\n\r\n"),
               Seen(b"/x", b"0\r\n\r\n")),
        served("of a GET", get(CHUNKED) + HELLO, WHOLE),
        served("held, not streamed", post(JSON, CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n"),
               Seen(b"/x", b"{}")),
        refused("held and broken", post(JSON, CHUNKED, body=b"2\r\n{}\r\nX\r\n")),
    ],
    "pipeline": [
        then_refused("poison behind a good one", get() + b"GET /y HTTP/1.1\r\n\r\n",
                     Seen(b"/x")),
        refused("a good one behind poison", get(b"A : b") + NEXT),
        then_refused("garbage between two", get() + b"\x00\x01\r\n\r\n" + NEXT,
                     Seen(b"/x")),
        served("a request in a body", sized(b"%d" % len(POISON), POISON + NEXT),
               Seen(b"/x", POISON), Seen(b"/next")),
        served("behind chunks", chunked(HELLO + NEXT), WHOLE, Seen(b"/next")),
        served("a letter before the next, as its method", chunked(HELLO + b"x" + NEXT),
               WHOLE, Seen(b"/next")),
        served("behind the last one", get(b"Connection: close") + POISON, lives=False),
        served("behind one of HTTP/1.0", start(b"GET /x HTTP/1.0") + POISON,
               lives=False),
        served("behind a websocket that is refused", get(b"Upgrade: websocket",
               b"Connection: upgrade") + NEXT, Seen(b"/x"), Seen(b"/next")),
        served("behind an expectation", post(LENGTH, b"Expect: 100-continue",
               body=b"hello" + NEXT), WHOLE, Seen(b"/next")),
        Case("behind an own path", start(b"GET /liveness HTTP/1.1") + NEXT, (200, 200),
             True, (Seen(b"/next"),)),
        Case("poison behind an own path", start(b"GET /liveness HTTP/1.1")
             + get(b"A : b"), (200, 400), False),
        Case("a head for the body of HEAD", start(b"HEAD /liveness HTTP/1.1") + NEXT,
             (200, 200), True, (Seen(b"/next"),)),
    ],
    "json": [
        Case("cut short", json(b'{"model":"m"'), (400,), True),
        Case("not closed", json(b'{"a":' * 50_000), (400,), True),
        Case("an array", json(b"[" * 50_000), (400,), True),
        Case("a nul behind it", json(b'{"model":"m"}\x00'), (400,), True),
        Case("two objects", json(b'{"model":"m"}{"model":"n"}'), (400,), True),
        Case("a model that is a list", json(b'{"model":["m"]}'), (400,), True),
        Case("bytes that are no UTF-8", json(b'{"model":"\xff\xfe"}'), (400,), True),
        served("a mark before it", json(b'\xef\xbb\xbf{"model":"m"}'),
               Seen(b"/x", b'\xef\xbb\xbf{"model":"m"}')),
        served("a model twice, escaped", json(b'{"model":"n","\\u006dodel":"m"}'),
               Seen(b"/x", b'{"model":"n","\\u006dodel":"m"}')),
        served("deep and whole", json(b'{"a":%b1%b}' % (b"[" * 9_000, b"]" * 9_000)),
               Seen(b"/x", b'{"a":%b1%b}' % (b"[" * 9_000, b"]" * 9_000))),
    ],
}  # fmt: skip

#: Never whole: what stands here is answered 408 once it is too late.
WAITING: list[Case] = [
    refused("a start line", b"GET /x HTTP/1.1", 408),
    refused("HTTP/0.9 without an end", b"GET /x\r\n", 408),
    refused("a head without its end", get()[:-2], 408),
    refused("a carriage return", b"\r", 408),
    refused("a method", b"G", 408),
    refused("a length that is longer", sized(b"6"), 408),
    refused("a held length that is longer", post(JSON, LENGTH, body=b"{}"), 408),
    refused("a chunk without its data", chunked(b"5\r\nhell"), 408),
    refused("chunks without an end", chunked(b"5\r\nhello\r\n"), 408),
    refused("trailers without an end", chunked(b"0\r\nA: b\r\n"), 408),
    refused("a chunk of four exabytes", chunked(b"3ffffffffffffff\r\n" + POISON), 408),
]
