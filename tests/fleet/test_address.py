"""Worker URLs: one address is written one way, and nothing else is let in."""

from __future__ import annotations

import pytest

from router.errors import BadRequest
from router.fleet import address
from router.fleet.worker import Endpoint


@pytest.mark.parametrize(
    ("text", "url", "host", "port"),
    [
        ("http://h:8000", "http://h:8000", "h", 8000),
        ("http://h:8000/", "http://h:8000", "h", 8000),
        (
            "HTTP://Gpu-1.Example:8000",
            "http://gpu-1.example:8000",
            "gpu-1.example",
            8000,
        ),
        ("http://h", "http://h", "h", 80),
        ("http://h:80", "http://h", "h", 80),
        ("http://h:0080", "http://h", "h", 80),
        ("http://vllm_1:443", "http://vllm_1:443", "vllm_1", 443),
        ("https://h:443/", "https://h", "h", 443),
        ("https://h:80", "https://h:80", "h", 80),
        ("http://10.0.0.1:8000", "http://10.0.0.1:8000", "10.0.0.1", 8000),
        ("http://[::1]:8000", "http://[::1]:8000", "::1", 8000),
        ("http://[2001:DB8:0:0::0:1]", "http://[2001:db8::1]", "2001:db8::1", 80),
    ],
)
def test_an_address_has_one_normal_form(
    text: str, url: str, host: str, port: int
) -> None:
    scheme, _, authority = url.partition("://")
    parsed = address.parse(text)
    assert parsed.url == url
    assert parsed.endpoint == Endpoint(host, port, scheme == "https", authority)
    assert address.parse(parsed.url) == parsed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must start with http"),
        ("h:8000", "must start with http"),
        ("localhost:8000", "must start with http"),
        ("grpc://h:8000", "must start with http"),
        ("ftp://h", "must start with http"),
        ("//h:8000", "must start with http"),
        ("http://", "bad port or host"),
        ("http://:8000", "bad port or host"),
        ("http://h:", "bad port or host"),
        ("http://h:0", "bad port or host"),
        ("http://h:65536", "bad port or host"),
        ("http://h:-1", "bad port or host"),
        ("http://h:8000x", "bad port or host"),
        ("http://-h", "bad port or host"),
        ("http://h..x", "bad port or host"),
        (f"http://{'a' * 64}", "bad port or host"),
        ("http://h%20x", "bad port or host"),
        ("http://a,b", "bad port or host"),
        ("http://[::1", "bad port or host"),
        ("http://[nope]", "bad port or host|IPv6"),
        ("http://[fe80::1%25eth0]", "zone"),
        ("http://::1:8000", "bad port or host"),
        ("http://h:8000/v1", "path"),
        ("http://h:8000//", "path"),
        ("http://h?x=1", "query"),
        ("http://h?", "query"),
        ("http://h/#x", "fragment"),
        ("http://u:p@h:8000", "user"),
        ("http://u@h", "user"),
        ("http://h:8000@3", "dp_size"),
        ("http://h:8000@3/", "dp_size"),
        (" http://h", "blank"),
        ("http://h\r\nX: y", "blank"),
        ("http://h\t", "blank"),
        ("http://bücher", "ASCII"),
    ],
)
def test_anything_but_a_base_url_is_refused_with_its_reason(
    text: str, reason: str
) -> None:
    with pytest.raises(BadRequest, match=reason) as caught:
        address.parse(text)
    assert caught.value.param == "url"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("HTTP://H:80/", "http://h"),
        ("http://H:8000@3", "http://h:8000@3"),
        ("http://H:8000@03/", "http://h:8000@3"),
        ("http://[::0:1]:8000@1", "http://[::1]:8000@1"),
        ("0123456789abcdef", "0123456789abcdef"),
        ("http://h/v1", "http://h/v1"),
        ("h@1", "h@1"),
    ],
)
def test_a_url_is_looked_up_however_it_is_written(text: str, found: str) -> None:
    assert address.lookup(text) == found


def test_a_rank_is_looked_up_by_the_url_it_is_given() -> None:
    ranked = address.rank_url("http://h:8000", 12)
    assert ranked == "http://h:8000@12"
    assert address.lookup(ranked) == ranked
