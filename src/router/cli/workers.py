"""`router workers`: a running router's fleet, seen and changed from a terminal.

Owns the commands and their output: a table for people, JSON for scripts.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from router.cli.client import JSON, Client, ClientError
from router.settings import SettingsError, admin_key

_DEFAULT_ROUTER = "http://127.0.0.1:30000"
#: Columns of a table that nobody looks at through a terminal.
_WIDE = 200
_STYLES = {
    "ready": "green",
    "pending": "yellow",
    "unhealthy": "red",
    "draining": "cyan",
}

_Rest = ParamSpec("_Rest")


class Out:
    """Where answers go: as a table or line for people, or as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        console = Console()
        self.console = console if console.is_terminal else Console(width=_WIDE)

    def fleet(self, answer: JSON) -> None:
        """The whole list of workers."""
        if self.as_json:
            click.echo(json.dumps(answer))
        else:
            self.console.print(table(answer))

    def done(self, answer: JSON, said: str) -> None:
        """The outcome of one change."""
        click.echo(json.dumps(answer) if self.as_json else said)


def connected(
    command: Callable[Concatenate[Client, Out, _Rest], None],
) -> Callable[..., None]:
    """Gives a command the options of a connection, and what they make of them."""

    @click.option("--router", default=_DEFAULT_ROUTER, show_default=True, metavar="URL")
    @click.option(
        "--admin-api-key",
        metavar="KEY|@FILE",
        help="The router's admin key; also FLEETROUTER_ADMIN_API_KEY.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
    @wraps(command)
    def run(
        router: str,
        admin_api_key: str | None,
        as_json: bool,
        *rest: _Rest.args,
        **options: _Rest.kwargs,
    ) -> None:
        try:
            client = Client(router, admin_key(admin_api_key))
            command(client, Out(as_json), *rest, **options)
        except SettingsError as error:
            raise click.UsageError(str(error)) from error
        except ClientError as error:
            raise click.ClickException(str(error)) from error

    return run


@click.group()
def workers() -> None:
    """See and change the workers of a running router.

    A worker is named by its id or its URL.
    """


@workers.command("list")
@connected
def list_workers(client: Client, out: Out, /) -> None:
    """Show all workers."""
    out.fleet(client.list())


@workers.command()
@connected
@click.argument("url")
@click.option("--model-id", help="A label; decides nothing.")
@click.option("--model", "models", multiple=True, help="Served until its list is read.")
@click.option("--alias", "aliases", multiple=True, metavar="ALIAS=MODEL")
@click.option("--weight", type=float, help="Its capacity; 1 if not given.")
@click.option("--max-concurrency", type=int, help="Requests in flight at most.")
@click.option("--provider", help="Whose server it is, if it is not yours.")
@click.option("--worker-api-key", help="The key that this worker asks for.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE")
@click.option("--dp-size", type=int, help="Data-parallel ranks behind the URL.")
@click.option("--priority", type=int, help="Failover tier, higher preferred.")
def add(client: Client, out: Out, /, url: str, **options: object) -> None:
    """Register the worker at URL; one that is not up yet joins late."""
    fields = {name: value for name, value in options.items() if value not in (None, ())}
    for name in ("aliases", "labels"):
        if name in fields:
            fields[name] = _pairs(fields[name])
    if "worker_api_key" in fields:
        fields["api_key"] = fields.pop("worker_api_key")
    answer = client.add({"url": url, **fields})
    verb = "replaced" if answer.get("replaced") else "added"
    out.done(answer, f"{verb} {_name(answer.get('worker'))}")


@workers.command()
@connected
@click.argument("worker")
@click.option("--drain-secs", type=click.FloatRange(min=0), help="Drain so long first.")
def remove(client: Client, out: Out, /, worker: str, drain_secs: float | None) -> None:
    """Take out WORKER; its running requests finish."""
    answer = client.remove(worker, drain_secs)
    out.done(answer, f"removed {_name(answer)}")


@workers.command()
@connected
@click.argument("worker")
def drain(client: Client, out: Out, /, worker: str) -> None:
    """Give WORKER no new requests; it goes when it is empty."""
    answer = client.drain(worker)
    out.done(answer, f"draining {_name(answer)}")


@workers.command()
@connected
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many.")
def watch(client: Client, out: Out, /, interval: float, count: int | None) -> None:
    """Show all workers again and again, until Ctrl-C."""
    with (
        Live(console=out.console, auto_refresh=False) as live,
        suppress(KeyboardInterrupt),
    ):
        for number in itertools.count(1):
            if out.as_json:
                out.fleet(client.list())
            else:
                live.update(_seen(client), refresh=True)
            if number == count:
                break
            time.sleep(interval)


def _seen(client: Client) -> RenderableType:
    """The table of now, or why there is none: a watch outlives its router."""
    try:
        return table(client.list())
    except ClientError as error:
        return Text(str(error), style="red")


def table(answer: JSON) -> Table:
    """The list of workers for people. Raises ClientError for another kind of answer."""
    try:
        stats = "  ".join(f"{name} {count}" for name, count in answer["stats"].items())
        rows = [_row(worker) for worker in answer["workers"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ClientError(
            "the answer is no list of workers; is it a router?"
        ) from error
    made = Table(caption=f"{answer.get('total', len(rows))} workers: {stats}")
    for heading in ("id", "url", "status", "models"):
        made.add_column(heading, overflow="fold")
    for heading in ("load", "weight", "priority"):
        made.add_column(heading, justify="right")
    made.add_column("last error", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def _row(worker: JSON) -> list[Text]:
    """Cells as plain Text: what comes from a worker is no markup."""
    models = worker["models"]
    shown = ", ".join(models[:3]) + (f" +{len(models) - 3}" if len(models) > 3 else "")
    status = str(worker["status"])
    cells = [
        Text(str(worker["id"])),
        Text(str(worker["url"])),
        Text(status, style=_STYLES.get(status, "")),
        Text(shown or "-"),
    ]
    numbers = (worker["load"], worker["weight"], worker["priority"])
    cells += [Text(f"{number:g}") for number in numbers]
    return [*cells, Text(str(worker["last_error"] or ""))]


def _pairs(words: object) -> dict[str, str]:
    pairs = dict[str, str]()
    for word in words if isinstance(words, tuple) else ():
        name, equals, value = str(word).partition("=")
        if not name or not equals:
            raise click.UsageError(f"{word!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def _name(worker: object) -> str:
    """`id url` of a worker in an answer."""
    if not isinstance(worker, dict):
        return "?"
    return f"{worker.get('id')} {worker.get('url')}"
