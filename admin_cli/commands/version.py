"""`multiraft version`."""

from __future__ import annotations

import importlib.metadata
import platform

import click

from admin_cli.console.help_pages import HelpfulCommand
from admin_cli.console.options import json_option
from admin_cli.console.output import print_json, print_table
from admin_cli.packages import distribution_root


@click.command(cls=HelpfulCommand)
@json_option
def version(as_json: bool) -> None:
    """Show the versions of installed packages, for a bug report."""
    answer = {"multiraft": _installed("multiraft"), "python": platform.python_version(),
              "platform": platform.platform(), "location": str(distribution_root())}
    if as_json:
        print_json(answer)
    else:
        print_table(("what", "version"), answer.items())


def _installed(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed, run from its source tree"
