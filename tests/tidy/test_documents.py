"""The documents say what is so: commands exist, examples parse, links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex

import click
import pytest

import multiraft
from admin_cli.development import dev_state
from admin_cli.failures import NotFound
from admin_cli.main import cli
from tests import readme
from tests.tidy import tree


def make_targets() -> set[str]:
    """Targets of the Makefile that a person calls."""
    return set(re.findall(r"^([a-z][a-z-]*):.*?## ", tree.text("Makefile"), flags=re.MULTILINE))


def test_every_make_command_that_is_named_exists():
    targets = make_targets()
    tree.complain("commands that do not exist:", [
        f"{name}:{number} names `make {found}`; the Makefile has {', '.join(sorted(targets))}"
        for name in tree.with_suffix(".md")
        for number, line in enumerate(tree.text(name).splitlines(), 1)
        for found in re.findall(r"`make ([a-z][a-z-]*)", line) if found not in targets])


def commands(line: str) -> list[list[str]]:
    """The calls of ``multiraft`` in a line of shell, as arguments."""
    parts = re.split(r"\||&&|;", line)
    return [words[1:] for words in map(shlex.split, parts) if words and words[0] == "multiraft"]


@pytest.mark.parametrize("line", [line for line in readme.shell_lines() if "multiraft " in line])
def test_every_command_of_the_readme_is_understood(line, tmp_path, monkeypatch):
    (tmp_path / "dev-cluster").mkdir()
    (tmp_path / "dev-cluster" / "cluster.json").touch()
    monkeypatch.chdir(tmp_path)  # where commands find a cluster without --dir
    for words in commands(line):
        command, context = cli, cli.make_context("multiraft", list(words), resilient_parsing=True)
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
            assert command is not None, line
        try:
            command.make_context(command.name, words, parent=context)
        except NotFound:
            pass  # understood: it only misses a cluster, which this machine may not have


def paths(group: click.Group, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The commands below a group, each as the words that are typed."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += (paths(command, (*before, name)) if isinstance(command, click.Group)
                  else [(*before, name)])
    return found


def listed(page: str) -> list[list[str]]:
    """Words of each line of the list of commands with which the page of the command begins, but for
    what the line says of them."""
    rows = [re.split(r" {2,}", line.strip()) for line in page.split("\n\n")[1].splitlines()]
    return [" ".join(row[:2]).replace(",", "").split()[1:] for row in rows]


def test_every_command_is_in_the_list_of_the_page_of_the_command():
    """A line is a group and names of its commands: ``multiraft group pool show, pool grow``."""
    lines = listed(tree.text("docs/cli.md"))
    assert ["version"] in lines, "the list is not where this test looks for it"
    missing = [" ".join(words) for words in paths(cli)
               if not any(line[0] == words[0] and {*words} <= {*line} for line in lines)]
    assert not missing, f"docs/cli.md, list of commands: {', '.join(missing)}"


def test_the_page_of_the_command_lists_no_group_that_is_not_there():
    known = {words[0] for words in paths(cli)}
    assert {line[0] for line in listed(tree.text("docs/cli.md"))} <= known


def test_the_first_screen_of_the_readme_has_the_two_commands():
    screen = "\n".join(tree.text("README.md").splitlines()[:40])
    assert "make demo" in screen
    assert "make test" in screen


def test_the_client_example_is_a_program_of_at_most_20_lines():
    example = readme.client_example()
    ast.parse(example)
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) <= 20, f"{len(lines)} lines"


def test_the_client_example_talks_to_the_cluster_of_dev_up():
    ports = re.findall(r"127\.0\.0\.1:(\d+)", readme.client_example())
    assert ports == [str(dev_state.DEFAULT_BASE_PORT + node) for node in (1, 2, 3)]


def test_every_row_of_the_promises_is_in_the_readme():
    text = tree.text("README.md")
    for level in ("`commit` (default", "`leader`", "`none`"):
        assert re.search(rf"^\| {re.escape(level)}", text, flags=re.MULTILINE), level
    assert "No unclean election" in text
    assert "A failed fsync stops the node" in text


def test_the_changelog_has_this_version_in_the_agreed_form():
    text = tree.text("CHANGELOG.md")
    versions = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d{2}-\d{2})?$", text, flags=re.MULTILINE)
    assert versions[0] == "Unreleased"
    release, _, development = multiraft.__version__.partition(".dev")
    assert (release in versions) == (not development), "a development version has no section yet"
    kinds = set(re.findall(r"^### (.+)$", text, flags=re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("name", tree.with_suffix(".md"))
def test_relative_links_lead_to_files(name):
    here = (tree.ROOT / name).parent
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", tree.text(name))
    broken = [link for link in links if not (here / link).exists()]
    assert not broken, f"{name} links to {broken}"


def test_decisions_are_numbered_once_and_have_their_parts():
    names = [name for name in tree.with_suffix(".md") if name.startswith("docs/decisions/")
             and name != "docs/decisions/README.md"]
    numbers = [name.split("/")[-1][:4] for name in names]
    assert len(numbers) == len(set(numbers)), f"a number stands twice: {numbers}"
    tree.complain("decision pages:", [
        f"{name}:1 has no part {part!r}" for name in names
        for part in ("Context", "Decision", "Consequences", "Rejected")
        if not re.search(rf"^## {part}", tree.text(name), flags=re.MULTILINE)])


def test_each_term_of_the_glossary_has_its_row_once():
    """Term, whose it is, what it means here; rows of one part in a table of three columns."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in tree.text("docs/glossary.md").splitlines() if line.startswith("| ")]
    heads = (["word", "means only", "elsewhere say"], ["term", "whose", "here"])
    assert rows[0] == heads[0] and rows.count(heads[1]) >= 8, "a table for each subject"
    incomplete = [row for row in rows if len(row) != 3 or not all(row)]
    assert not incomplete, incomplete
    reserved = rows.index(heads[1])
    terms = [term.strip() for row in rows[reserved:] if row not in heads
             for term in row[0].split(",")]
    twice = sorted({term for term in terms if terms.count(term) > 1})
    assert not twice, f"terms that stand twice: {twice}"
