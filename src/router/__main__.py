"""`python -m router`, and the command `router`."""

from __future__ import annotations

from router.cli import cli


def main() -> None:
    """Runs the command line and exits."""
    cli(prog_name="router")


if __name__ == "__main__":
    main()
