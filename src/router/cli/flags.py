"""A command whose flags are the table of settings.

Owns their help, and how settings and mistakes are shown: all mistakes at once, exit
code 2. click sees none of the flags, since it would stop at the first mistake and has
no `--worker-urls A B C`.
"""

from __future__ import annotations

from itertools import groupby

import click

from router.settings import FLAGS, Reading, Settings, SettingsError, load
from router.settings.sources import Flag

_PLACES = (
    "Every flag is also FLEETROUTER_<FLAG_IN_CAPITALS> in the environment and a key "
    "of the --config file. A flag beats the environment, the environment the file."
)


class SettingsCommand(click.Command):
    """Leaves all its arguments in `ctx.args`, and writes the table as its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        super().parse_args(ctx, ["--help"] if "--help" in args else [])
        ctx.args = args
        return args

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        for group, flags in groupby(FLAGS, key=lambda flag: flag.group):
            with formatter.section(group):
                formatter.write_dl([_help(flag) for flag in flags])
        formatter.write_paragraph()
        formatter.write_text(_PLACES)


def settings_of(ctx: click.Context) -> Settings:
    """The settings of the command's arguments; a usage error names every mistake."""
    try:
        return load(ctx.args)
    except SettingsError as error:
        raise click.UsageError("\n  ".join(error.mistakes), ctx) from error


def print_reading(reading: Reading) -> None:
    """A line for each setting with its value and where that comes from, then the
    mistakes, on stderr. Keys are not shown."""
    for flag in FLAGS:
        value = flag.kind.show(getattr(reading.settings, flag.name))
        given = reading.given.get(flag.name)
        click.echo(
            f"{flag.option:<32} {value}  ({given.place if given else 'default'})"
        )
    for mistake in reading.mistakes:
        click.echo(f"Error: {mistake}", err=True)


def _help(flag: Flag) -> tuple[str, str]:
    usage = flag.option if flag.kind.switch else f"{flag.option} {flag.kind.shape()}"
    default = flag.kind.show(flag.default)
    return usage, f"{flag.help}  [{default}]"
