"""The command line: argv -> Settings -> run.

Owns the commands and their exit codes: 0 done, 1 it did not work, 2 it was not asked
rightly. Does no work of its own.
"""

from __future__ import annotations

import click

from router import __version__
from router.app import run
from router.cli.flags import SettingsCommand, print_reading, settings_of
from router.cli.workers import workers
from router.settings import read
from router.simulate.command import demo, simulate


@click.group(context_settings={"help_option_names": ["--help"]})
@click.version_option(__version__, prog_name="fleetrouter")
def cli() -> None:
    """One address in front of a fleet of vLLM servers."""


@cli.command(cls=SettingsCommand, options_metavar="[FLAGS]")
@click.pass_context
def serve(ctx: click.Context) -> None:
    """Run the router until SIGTERM or Ctrl-C."""
    ctx.exit(run(settings_of(ctx)))


@cli.command(cls=SettingsCommand, options_metavar="[FLAGS]")
@click.pass_context
def check(ctx: click.Context) -> None:
    """Print the settings that `serve` would run by, and every mistake."""
    reading = read(ctx.args)
    print_reading(reading)
    ctx.exit(2 if reading.mistakes else 0)


cli.add_command(workers)
cli.add_command(simulate)
cli.add_command(demo)
