"""Settings come from flags, environment and file, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from router.errors import BadRequest
from router.fleet.discovery import static
from router.settings import FLAGS, Settings, SettingsError, admin_key, load, read
from router.settings.sources import Flag

A_B = ("http://a", "http://b")
ALIASES = {"a": "m", "b": "n"}
CONSISTENT = ["--policy", "consistent_hash"]


def mistakes(*argv: str, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    return read(argv, environ or {}).mistakes


def test_without_any_source_every_setting_is_its_default() -> None:
    assert load([], {}) == Settings()


def test_settings_are_a_frozen_value() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_a_default_is_within_its_own_bounds(flag: Flag) -> None:
    """What the table gives by default could also be written by hand."""
    if flag.default is not None:
        raw = list(flag.default) if isinstance(flag.default, tuple) else flag.default
        assert flag.kind.parse(raw) == flag.default


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--port", "8000"], "port", 8000),
        (["--port=8000"], "port", 8000),
        (["--port", "1", "--port", "2"], "port", 2),
        (["--worker-urls", "http://a", "http://b/"], "worker_urls", A_B),
        (
            ["--worker-urls", "http://a", "--worker-urls", "http://b"],
            "worker_urls",
            A_B,
        ),
        (["--worker-urls"], "worker_urls", ()),
        (["--worker-urls", "http://a", "--access-log"], "access_log", True),
        (["--access-log=false"], "access_log", False),
        (["--disable-retries"], "disable_retries", True),
        (["--model-alias", "a=m", "--model-alias", "b=n"], "model_alias", ALIASES),
        (["--model-alias", "a=m", "b=n"], "model_alias", ALIASES),
        (["--model-alias", "a=org/m=x"], "model_alias", {"a": "org/m=x"}),
        (["--retry-statuses", "500", "503"], "retry_statuses", (500, 503)),
        (["--retry-statuses"], "retry_statuses", ()),
        (["--request-id-headers", "X-Id"], "request_id_headers", ("x-id",)),
        (["--request-timeout-secs", "0.5"], "request_timeout_secs", 0.5),
        (["--prometheus-port", "29000"], "prometheus_port", 29000),
        ([*CONSISTENT, "--balance-factor", "0"], "balance_factor", 0.0),
    ],
)
def test_a_flag_gives_its_value(argv: list[str], name: str, value: object) -> None:
    assert getattr(load(argv, {}), name) == value


@pytest.mark.parametrize(
    ("variable", "raw", "name", "value"),
    [
        ("PORT", "8000", "port", 8000),
        ("WORKER_URLS", "http://a, http://b", "worker_urls", A_B),
        ("ACCESS_LOG", "true", "access_log", True),
        ("ACCESS_LOG", "0", "access_log", False),
        ("MODEL_ALIAS", "a=m b=n", "model_alias", ALIASES),
        ("RETRY_STATUSES", "500,503", "retry_statuses", (500, 503)),
        ("API_KEY", "", "api_key", None),
        ("HOST", "::1", "host", "::1"),
    ],
)
def test_the_environment_gives_the_same_settings(
    variable: str, raw: str, name: str, value: object
) -> None:
    assert getattr(load([], {f"FLEETROUTER_{variable}": raw}), name) == value


YAML = """
port: 8000
worker-urls: [http://a, "http://b:1"]
access_log: true
model-alias: {gpt: org/model}
retry-statuses: [503]
request-timeout-secs: 10
api-key:
"""
TOML = """
port = 8000
worker-urls = ["http://a", "http://b:1"]
access_log = true
model-alias = {gpt = "org/model"}
retry-statuses = [503]
request-timeout-secs = 10
"""


@pytest.mark.parametrize(("suffix", "text"), [("yaml", YAML), ("toml", TOML)])
def test_a_file_gives_the_same_settings(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"router.{suffix}"
    path.write_text(text)
    assert load(["--config", str(path)], {}) == Settings(
        config=str(path),
        port=8000,
        worker_urls=("http://a", "http://b:1"),
        access_log=True,
        model_alias={"gpt": "org/model"},
        retry_statuses=(503,),
        request_timeout_secs=10.0,
    )


def test_a_flag_beats_the_environment_and_that_beats_the_file(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("port: 1\nhost: file\nlog-level: debug\n")
    environ = {
        "FLEETROUTER_CONFIG": str(path),
        "FLEETROUTER_PORT": "2",
        "FLEETROUTER_HOST": "environment",
    }
    settings = load(["--port", "3"], environ)
    assert (settings.port, settings.host, settings.log_level) == (
        3,
        "environment",
        "debug",
    )


@pytest.mark.parametrize(
    ("environ", "port"),
    [
        ({"FLEETROUTER_PORT": "tcp://10.0.0.1:80"}, 30_000),
        ({"FLEETROUTER_PORT_80_TCP": "tcp://10.0.0.1:80"}, 30_000),
        ({"FLEETROUTER_SERVICE_HOST": "10.0.0.1", "FLEETROUTER_PRT": "x"}, 30_000),
    ],
)
def test_what_kubernetes_and_others_set_is_left_alone(
    environ: Mapping[str, str], port: int
) -> None:
    assert load([], environ).port == port


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--port", "x"], "--port: 'x' is not a whole number"),
        (["--port", "70000"], "--port: 70000 is not between 0 and 65535"),
        (["--port"], "--port: takes one value, none given"),
        (["--port", "1", "2"], "--port: takes one value, 2 given"),
        (["--prot", "1"], "--prot: no such flag (did you mean --port?)"),
        (["--queue-size", "1"], "--queue-size: no such flag"),
        (["--tls-cert", "x"], "--tls-cert: no such flag"),
        (["--processes", "0"], "0 is not between 1 and 64"),
        (["--processes", "many"], "'many' is neither a number nor auto"),
        (["http://a"], "unexpected: http://a"),
        (["--policy", "best"], "--policy: 'best' is none of least_load, round_robin"),
        (["--connect-timeout-secs", "0"], "--connect-timeout-secs: 0.0 is not above 0"),
        (["--hold-timeout-secs", "-1"], "--hold-timeout-secs: -1.0 is not at least 0"),
        (["--connect-timeout-secs", "nan"], "'nan' is not a number"),
        (["--connect-timeout-secs", "1e400"], "is not a finite number"),
        (
            ["--worker-urls", "a:8000"],
            "'a:8000' is not a worker's URL: `url` must start with http",
        ),
        (["--worker-urls", "ftp://a"], "`url` must start with http:// or https://"),
        (["--worker-urls", "http://a:x"], "`url` has a bad port or host"),
        (["--worker-urls", "http://a:0"], "`url` has a bad port or host"),
        (["--worker-urls", "http://a?b"], "without a query"),
        (["--worker-urls", "http://a/v1"], "without a path"),
        (["--worker-urls", "http://a", "HTTP://A:80/"], "http://a stands twice"),
        (["--model-alias", "a"], "'a' is not ALIAS=MODEL"),
        (["--model-alias", "a="], "a= is not ALIAS=MODEL"),
        (["--model-alias", "a=m", "a=n"], "a is given two models"),
        (["--model-alias", "a=b", "b=c"], "b is an alias and a model at once"),
        ([*CONSISTENT, "--session-headers", "a b"], "'a b' is not a header's name"),
        (["--request-id-headers", "Host"], "host belongs to the connection"),
        (["--request-id-headers"], "--request-id-headers: at least 1 needed"),
        (["--retry-statuses", "200"], "200 is not between 400 and 599"),
        (["--health-check-endpoint", "health"], "'health' is not a path"),
        (["--access-log=maybe"], "'maybe' is neither true nor false"),
        (["--config", "/nowhere/router.yaml"], "cannot read /nowhere/router.yaml"),
        (["--host", "a b"], "'a b' is not a host name or address"),
    ],
)
def test_a_bad_flag_is_named_with_what_is_wrong(argv: list[str], expected: str) -> None:
    (mistake,) = mistakes(*argv)
    assert expected in mistake


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prot: 1", "prot in PATH: no such key (did you mean port?)"),
        ("config: x.yaml", "config in PATH: no such key"),
        ("port: 1\nport: 2", "PATH: port stands twice"),
        ("log-level: info\nlog_level: debug", "log_level in PATH: stands twice"),
        ("port: true", "port in PATH: True is not a whole number"),
        ("port: 1.5", "port in PATH: 1.5 is not a whole number"),
        ("api-key: 12345", "api-key in PATH: the key is not text"),
        ("host: 1", "host in PATH: 1 is not text"),
        ("worker-urls: {a: b}", "worker-urls in PATH: {'a': 'b'} is neither a list"),
        ("- port", "PATH: not a mapping of settings"),
        ("port: [", "PATH: while parsing"),
        ("? [port]\n: 1", "PATH: "),
        ("port: \xff", "PATH: "),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "router.yaml"
    path.write_bytes(text.encode("latin-1"))
    (mistake,) = mistakes("--config", str(path))
    assert expected.replace("PATH", str(path)) in mistake


def test_a_bad_toml_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "router.toml"
    path.write_text("port = 1\nport = 2\n")
    (mistake,) = mistakes("--config", str(path))
    assert mistake.startswith(f"{path}: ")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("# nothing yet\n")
    assert load(["--config", str(path)], {}) == Settings(config=str(path))


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "HTTP://A.b-c_d.:80/",
        "https://a:443",
        "https://a:80",
        "http://[0:0::1]:08000",
        "http://[::ffff:1.2.3.4]",
        "http://1.2.3.4:9",
        "http://[fe80::1%25eth0]",
        "http://[::1",
        "http://-a",
        "http://a-",
        "http://a:",
        "http://a:0",
        "http://a:99999",
        "http://a:+8",
        "http://a//",
        "http://a/v1",
        "http://a?",
        "http://a#",
        "http://a;b",
        "http://\u00e4",
        "http:/a",
        "http://",
        "http://b@a",
        "http://a@0",
        "http://" + "a" * 253,
        "http://" + "a" * 254,
    ],
)
def test_a_worker_url_is_what_the_fleet_takes_and_written_its_way(url: str) -> None:
    """Or a mistake would come out only when the router has started."""
    try:
        (expected,) = (item.url for item in static.registrations([url]))
    except BadRequest:
        assert len(mistakes("--worker-urls", url)) == 1
    else:
        assert load(["--worker-urls", url], {}).worker_urls == (expected,)


def test_every_mistake_is_named_in_one_go(tmp_path: Path) -> None:
    """Also several of one list, and those of all three sources."""
    path = tmp_path / "router.yaml"
    path.write_text("log-format: xml\n")
    with pytest.raises(SettingsError) as raised:
        load(
            ["--config", str(path), "--port", "x", "--worker-urls", "a", "b"],
            {"FLEETROUTER_HOST": "a b", "FLEETROUTER_MIN_READY_WORKERS": "-1"},
        )
    text = str(raised.value)
    assert len(raised.value.mistakes) == 5
    for wrong in ("'xml'", "'x'", "'a' is", "'b' is", "'a b'", "-1"):
        assert wrong in text


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--balance-factor", "2"], "--balance-factor"),
        (["--balance-abs", "2", "--policy", "random"], "--balance-abs"),
        (["--session-headers", "x-user"], "--session-headers"),
        ([*CONSISTENT, "--balance-factor=0", "--balance-abs=1"], "--balance-abs"),
        (["--disable-retries", "--retry-max-retries", "1"], "--retry-max-retries"),
        (["--disable-retries", "--retry-statuses", "503"], "--retry-statuses"),
        (["--retry-max-retries=0", "--retry-jitter-factor=0"], "--retry-jitter-factor"),
        (["--retry-initial-backoff-ms", "9000"], "--retry-initial-backoff-ms"),
        (["--hold-queue-size", "1"], "--hold-queue-size"),
        (["--prometheus-host", "::1"], "--prometheus-host"),
        (["--prometheus-port", "30000"], "--prometheus-port"),
    ],
)
def test_a_flag_that_does_nothing_in_this_mode_is_refused(
    argv: list[str], named: str
) -> None:
    (mistake,) = mistakes(*argv)
    assert mistake.startswith(named)


def test_the_same_flags_are_taken_in_the_mode_that_reads_them() -> None:
    argv = [*CONSISTENT, "--balance-factor", "2", "--balance-abs", "1"]
    argv += ["--session-headers", "x-user", "--hold-timeout-secs", "5"]
    argv += ["--hold-queue-size", "1", "--retry-statuses", "503"]
    argv += ["--prometheus-port", "0", "--prometheus-host", "::1"]
    assert mistakes(*argv) == ()


def test_a_bad_value_brings_no_second_complaint_about_what_needs_it() -> None:
    (mistake,) = mistakes("--policy", "consistent_hsh", "--balance-factor", "2")
    assert mistake.startswith("--policy")


def test_a_key_is_read_from_a_file_without_its_final_newline(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("sk-1\n")
    settings = load(["--api-key", f"@{path}"], {"FLEETROUTER_ADMIN_API_KEY": "sk-2"})
    assert (settings.api_key, settings.admin_api_key) == ("sk-1", "sk-2")


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", "sk-secret"],
        ["--api-key", "sk-secret with a space"],
        ["--api-key", "sk-secret", "sk-secret"],
        ["--apikey", "sk-secret"],
        ["--apikey=sk-secret"],
        ["--worker-urls", "http://user:sk-secret@host"],
        ["--worker-urls", "http://user:sk-secret@[host"],
    ],
)
def test_a_key_is_never_shown(argv: list[str]) -> None:
    """Neither in a repr nor in a complaint, whatever is wrong around it."""
    reading = read(argv, {})
    assert "sk-secret" not in repr(reading.settings)
    assert "sk-secret" not in "\n".join(reading.mistakes)


@pytest.mark.parametrize("content", [b"", b"\n", b"two words\n", b"\xc3\xa4", None])
def test_a_key_file_that_holds_no_key_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    (mistake,) = mistakes("--admin-api-key", f"@{path}")
    assert mistake.startswith("--admin-api-key: ")
    assert "words" not in mistake


def test_a_client_finds_its_admin_key_in_the_flag_or_the_environment() -> None:
    environ = {"FLEETROUTER_ADMIN_API_KEY": "from-env"}
    assert admin_key("from-flag", environ) == "from-flag"
    assert admin_key(None, environ) == "from-env"
    assert admin_key(None, {}) is None
    with pytest.raises(SettingsError, match="--admin-api-key"):
        admin_key("two words", environ)
