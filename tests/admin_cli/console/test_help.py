"""`-h` and `multiraft help`: what matters first, whole sentences, pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from admin_cli.console.help_pages import PAGES
from admin_cli.console.options import TLS_FLAGS
from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.session import Session
from tests.admin_cli.tree import commands

#: The first screen of a small terminal.
COLUMNS, LINES = 80, 24


def groups(command=cli, path=()) -> Iterator[tuple[str, ...]]:
    """Paths of all groups of commands."""
    ctx = click.Context(command, obj=Session({}))
    yield path
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        if isinstance(found, click.Group):
            yield from groups(found, (*path, name))


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


@pytest.mark.parametrize("path", [*groups()], ids=" ".join)
def test_no_summary_of_a_command_is_cut(run, narrow, path):
    text = run(*path, "--help").stdout
    _, heading, commands_ = text.partition("\nCommands:\n")
    assert heading
    assert "..." not in commands_.partition("\nConnection:\n")[0]


@pytest.mark.parametrize("found", [found for found in commands() if any(
    "--servers" in parameter.opts for parameter in found.command.params)], ids=str)
def test_options_of_the_connection_come_last_in_few_lines(run, narrow, found):
    text = run(*found.path, "--help").stdout
    own, _, connection = text.partition("\nConnection:\n")
    connection = connection.partition("\n\n")[0]  # examples follow
    assert "--help" in own
    assert "--servers" in connection and "multiraft help tls" in connection
    assert "--servers" not in own.partition("Options:")[2]
    assert not re.search("^ +--tls", own, re.MULTILINE)
    assert len(connection.splitlines()) <= 5


@pytest.mark.parametrize("command, options", [
    ("produce", ["--file", "--key-separator"]),
    ("topic create", ["--partitions", "--replication-factor", "--if-not-exists"]),
    ("topic describe", ["--json"]), ("dev logs", ["--follow", "--lines", "--level", "--dir"])])
def test_the_first_screen_has_what_the_command_is_about(run, narrow, command, options):
    first = "\n".join(run(*command.split(), "--help").stdout.splitlines()[:LINES - 1])
    assert [option for option in options if option not in first] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_a_small_terminal(run, narrow, page):
    result = run("help", page)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS


def test_the_page_about_tls_has_every_option_and_its_variable(run):
    text = run("help", "tls").stdout
    for flag in ("--tls", *TLS_FLAGS):
        assert f"{flag} " in text
        assert "MULTIRAFT_" + flag.removeprefix("--").replace("-", "_").upper() in text


def test_the_page_about_exit_codes_has_every_code(run):
    codes = {int(found) for found in re.findall(r"^ +(\d+) ", run("help", "exit-codes").stdout,
                                                re.MULTILINE)}
    assert codes == {int(code) for code in ExitCode}


def test_help_without_a_word_lists_commands_and_pages(run):
    text = run("help").stdout
    assert "Commands:" in text
    assert all(re.search(f"^  {page} ", text, re.MULTILINE) for page in PAGES)


def test_help_of_a_command_is_that_of_the_command(run):
    assert run("help", "topic", "create").stdout == run("topic", "create", "--help").stdout


@pytest.mark.parametrize("typed, said", [
    ("tsl", "`multiraft help tls`"), ("topics", "`multiraft help topic`"),
    ("topic crate", "`multiraft topic --help`"), ("produce x", "`multiraft produce --help`")])
def test_an_unknown_page_is_a_wrong_command_line(run, typed, said):
    result = run("help", *typed.split())
    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr
