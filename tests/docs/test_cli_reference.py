"""The reference of all commands and options, made from the commands themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import click

from tests.admin_cli.tree import Found, commands
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "cli-reference.md"
MARK = "<!-- commands: made from the source by tests/docs/test_cli_reference.py -->\n"
#: A command whose options are those of every command that asks a cluster.
ASKS = ("cluster", "status")


def visible(command: click.Command) -> Iterator[click.Parameter]:
    """Yield the parameters that the help shows."""
    for parameter in command.params:
        if not (isinstance(parameter, click.Option) and parameter.hidden):
            yield parameter


def cell(text: str) -> str:
    """Return text as one cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", r"\|").strip()


def option_row(option: click.Option, context: click.Context) -> str:
    """Return the row of an option, also of one that only a page of the help shows."""
    record = click.Option.get_help_record(option, context)
    assert record is not None
    names, text = record
    return f"| `{cell(names)}` | {cell(text)} |\n"


def options_of(command: click.Command, context: click.Context, left_out: set[str]) -> str:
    """Return the table of a command's options without ``left_out``; empty if it has none."""
    rows = [option_row(option, context) for option in visible(command)
            if isinstance(option, click.Option) and option.name not in left_out]
    return f"\n| option | meaning |\n|---|---|\n{''.join(rows)}" if rows else ""


def section(found: Found, shared: set[str]) -> str:
    """Return the section of one command."""
    path = " ".join(("multiraft", *found.path))
    context = click.Context(found.command, info_name=path)
    usage = " ".join([path, *found.command.collect_usage_pieces(context)])
    paragraphs = [cell(part.replace("\b", "")) for part in (found.command.help or "").split("\n\n")]
    asks = shared.issubset(option.name for option in found.command.params)
    return (f"\n## {path}\n\n    {usage}\n\n" + "\n\n".join(paragraphs) + "\n"
            + options_of(found.command, context, shared if asks else set()))


def page() -> str:
    """Return the page."""
    found = list(commands())
    asking = next(each.command for each in found if each.path == ASKS)
    shared = {option.name for option in visible(asking)
              if option.name == "servers" or option.name.startswith("tls")}
    context = click.Context(asking, info_name="multiraft")
    connection = options_of(asking, context,
                            {option.name for option in visible(asking)} - shared)
    before = PAGE.read_text().split(MARK)[0]
    sections = [section(each, shared) for each in found if not each.command.hidden]
    return "".join([before, MARK, *sections, f"\n## Connection\n{connection}"])


def test_the_page_has_every_command_and_option():
    expected = page()
    if os.environ.get("MULTIRAFT_REWRITE"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "MULTIRAFT_REWRITE=1 writes docs/cli-reference.md anew"
