"""Words and options of other products: each is answered with a command that exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from admin_cli.console import hints
from admin_cli.console.hints import HINTS, did_you_mean
from admin_cli.failures import PLAN_USAGE, ExitCode
from admin_cli.main import cli
from admin_cli.packages import distribution_root
from admin_cli.records.foreign_flags import TranslatedCommand
from admin_cli.session import Session
from tests.admin_cli.tree import commands

#: Values for the words in capitals that sentences have.
VALUES = {"TOPIC": "t", "NAME": "t", "GROUP": "1", "NODE": "2", "N": "3", "PARTITIONS": "3"}


def named_commands() -> list[str]:
    """Every command that a sentence puts between backticks."""
    found = set()
    for sentence in HINTS.values():
        found.update(re.findall(r"`multiraft ([^`]+)`", sentence))
    return sorted(found)


@pytest.mark.parametrize("line", named_commands())
def test_every_command_that_is_named_exists_with_its_options(line):
    ctx = click.Context(cli, obj=Session({}))
    words = shlex.split(line)
    while words and isinstance(ctx.command, click.Group):
        found = ctx.command.get_command(ctx, words[0])
        assert found is not None, words[0]
        ctx = click.Context(found, ctx, words.pop(0))
    known = {name for parameter in ctx.command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def texts(source: str) -> Iterator[str]:
    """Yield every string of a module; braces stand for the values in an f-string."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
             for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}"
                          for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) \
                and id(node) not in parts:
            yield node.value


def lines_typed(text: str) -> Iterator[str]:
    """Yield the words behind ``multiraft`` that a text asks for: between backticks, behind a colon,
    or as a line of its own."""
    for found in re.finditer(r"(?:^ *|[`(]|: +|&& |\| )multiraft +([^`\n]*)", text, re.MULTILINE):
        yield re.split(r"&&|\||>|[.,;:)\"]+(?:\s|$)", found[1])[0]


def wrong_word(line: str) -> str | None:
    """Return the first word of a command line that is no command or no option of it; None = there
    is none, up to a value that is not known here."""
    ctx, words = click.Context(cli, obj=Session({})), line.split()
    while words and isinstance(ctx.command, click.Group) and re.match("[a-z]", words[0]):
        found = ctx.command.get_command(ctx, words[0])
        if found is None:
            return words[0]
        ctx = click.Context(found, ctx, words.pop(0))
    known = {"--help", *(name for parameter in ctx.command.params
                         for name in (*parameter.opts, *parameter.secondary_opts))}
    return next((word for word in words if re.match("--?[a-zA-Z]", word)
                 and word.partition("=")[0] not in known), None)


@pytest.mark.parametrize("text, words", [
    ("a `multiraft topic crate NAME` b", ["crate"]), ("Do: multiraft dev up --wipe.", ["--wipe"]),
    ("  multiraft nonsense\n  multiraft topic list --json", ["nonsense", None]),
    ("(multiraft dev up --dir {})", [None]), ("does not speak multiraft dialect", [])])
def test_a_command_that_does_not_exist_is_found_in_a_text(text, words):
    assert [wrong_word(line) for line in lines_typed(text)] == words


@pytest.mark.parametrize("package", ["admin_cli", "node", "placement"])
def test_every_command_in_a_string_exists_with_its_options(package):
    checked, wrong = 0, []
    for path in sorted((distribution_root() / package).rglob("*.py")):
        for text in texts(path.read_text(encoding="utf-8")):
            for line in lines_typed(text):
                checked += 1
                if wrong_word(line) is not None:
                    wrong.append(f"{path.name}: {line}")
    assert checked and not wrong


def without_option(words: list[str], option: str) -> list[str] | None:
    """Return the first command that begins with the words and lacks the option; None = there is
    none.  Those with answers of their own are left out."""
    for found in commands():
        if list(found.path[:len(words)]) == words \
                and not isinstance(found.command, TranslatedCommand) \
                and not any(option in (*parameter.opts, *parameter.secondary_opts)
                            for parameter in found.command.params):
            return [*found.path]
    return None


@pytest.mark.parametrize("row", HINTS)
def test_a_row_is_reached(run, row):
    """A command or an option that exists needs no row, and a longer row hides none."""
    words = [word for word in row.split() if not word.startswith("-")]
    options = [word for word in row.split() if word.startswith("-")]
    if options and (not words or hints.of_command(words, 0) is None):
        command = without_option(words, options[0])
        assert command is not None, "every command has the option"
        result = run(*command, *options)
        assert result.exit_code in (ExitCode.USAGE, PLAN_USAGE), result.output
        assert f"No such option {options[0]!r}. {HINTS[row]}" in " ".join(result.stderr.split())
        return
    result = run(*row.split())
    assert result.exit_code == ExitCode.USAGE, result.output
    assert "there is no command" in result.stderr
    assert HINTS[row] in result.stderr


@pytest.mark.parametrize("typed, said", [
    # What users of each product type first, and the command or the sentence for it.
    ("cluster info", "`multiraft cluster status`"),
    ("cluster health", "`multiraft cluster status`"),
    ("cluster logdirs", "`multiraft cluster status`"),
    ("cluster maintenance enable 1", "`multiraft node maintenance`"),
    ("cluster partitions balance", "`multiraft rebalance plan`"),
    ("redpanda admin brokers decommission 1", "`multiraft node decommission`"),
    ("topic alter-config t --set retention.ms=1", "`multiraft topic alter`"),
    ("kafka-configs.sh --alter --topic t", "`multiraft topic alter TOPIC --set NAME=VALUE`"),
    ("cluster config set retention.ms 1", "`multiraft cluster settings`"),
    ("topic create-partitions t --num 3", "`multiraft topic add-partitions`"),
    ("topic alter t --partitions 3", "`multiraft topic add-partitions`"),
    ("topic trim-prefix t --offset 3", "`multiraft topic delete-records`"),
    ("topic produce t", "`multiraft produce`"),
    ("topic consume t", "`multiraft consume`"),
    ("group seek orders --to start", "`multiraft consume TOPIC --from`"),
    ("security user create me", "`multiraft help tls`"),
    ("security acl list", "`multiraft help tls`"),
    ("user create me", "`multiraft help tls`"),
    ("acl list", "`multiraft help tls`"),
    ("container start -n 3", "`multiraft dev up`"),
    ("profile create here", "MULTIRAFT_SERVERS"),
    ("context add here", "MULTIRAFT_SERVERS"),
    ("kafka-topics --create --topic t --bootstrap-server a:1", "`multiraft topic create NAME"),
    ("kafka-topics.sh --bootstrap-server a:1 --list", "`multiraft topic list`"),
    ("kafka-topics.sh --alter --topic t --partitions 9", "`multiraft topic add-partitions`"),
    ("kafka-console-producer.sh --topic t", "`multiraft produce`"),
    ("kafka-console-consumer.sh --topic t --from-beginning", "`multiraft consume`"),
    ("kafka-consumer-groups.sh --list", "There are no consumer groups"),
    ("consumer-groups list", "There are no consumer groups"),
    ("kafka-reassign-partitions.sh --generate", "`multiraft rebalance plan`"),
    ("kafka-log-dirs.sh --describe", "`multiraft cluster status`"),
    ("kafka-dump-log.sh --files x", "`multiraft log inspect`"),
    ("stream ls", "`multiraft topic list`"),
    ("stream info t", "`multiraft topic describe`"),
    ("stream report", "`multiraft cluster status`"),
    ("stream rm t", "`multiraft topic delete`"),
    ("stream add t", "`multiraft topic create`"),
    ("stream backup t d", "`multiraft consume TOPIC --json --until-end`"),
    ("stream cluster step-down t", "`multiraft group transfer GROUP NODE`"),
    ("server report jetstream", "`multiraft cluster status`"),
    ("server check connection", "`multiraft cluster status`"),
    ("rtt", "`multiraft cluster status`"),
    ("pub t hello", "`multiraft produce`"), ("sub t", "`multiraft consume`"),
    ("bench js pub t", "`make bench-first-light`"),
    ("endpoint status --cluster -w table", "`multiraft cluster status`"),
    ("endpoint health --cluster", "`multiraft cluster status`"),
    ("member list", "`multiraft node list`"), ("member add n4", "`multiraft node init --join`"),
    ("member promote 4", "`multiraft group members`"),
    ("member remove 4", "`multiraft node remove`"),
    ("move-leader 2", "`multiraft group transfer GROUP NODE`"),
    ("alarm list", "`multiraft cluster status`"),
    ("snapshot save f", "`multiraft consume TOPIC --json --until-end`"),
    ("watch t", "`multiraft consume --follow`"),
    ("top", "`multiraft cluster status --watch`"),
    ("-L", "`multiraft topic list`"), ("-C -t t", "`multiraft consume`"),
    ("-P -t t", "`multiraft produce`"),
    ("topic list --format json", "--json"),
    ("node list -w", "`multiraft cluster status --watch`"),
])
def test_first_words_of_other_products_lead_to_the_command(run, typed, said):
    result = run(*typed.split())
    assert result.exit_code == ExitCode.USAGE
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize("typed, option", [
    ("topic list --cacer", "--cacert"), ("topic list --tlske", "--tls-key"),
    ("topic list --broke a", "--broker")])
def test_hidden_names_of_options_are_not_suggested(run, typed, option):
    error = run(*typed.split()).stderr
    hidden = {"--cacert", "--tlskey", "--broker"}
    assert not hidden & set(re.findall(r"--[a-z-]+", error.partition("Did you mean")[2]))


def test_an_option_that_is_nearly_right_is_suggested(run):
    assert "Did you mean --json?" in run("topic", "list", "--jsn").stderr


def test_an_unknown_option_of_a_plan_keeps_the_exit_code_of_plans(run):
    assert run("rebalance", "plan", "--nonsense").exit_code == 64


@pytest.mark.parametrize("typed", [["topic", "\x1b[31m"], ["\x1b]0;x\x07"],
                                   ["topic", "list", "--\x1b[31m"]])
def test_a_hostile_word_is_escaped(run, typed):
    result = run(*typed)
    assert result.exit_code == ExitCode.USAGE
    assert "\x1b" not in result.output


def test_a_word_of_another_groups_command_is_not_suggested():
    assert did_you_mean("topic create") == "Did you mean `multiraft topic create`?"
    assert hints.of_command(["topic", "nonsense"], 1) is None
    assert hints.of_command(["nonsense", "-w"], 0) is None


def test_words_beyond_the_limit_are_not_compared():
    typed = ["kafka-topics", *["x"] * hints.WORDS_MAX, "--create"]
    assert hints.of_command(typed, 0) == HINTS["kafka-topics"]


def test_a_misspelt_word_of_another_product_is_understood(run):
    assert "Did you mean `multiraft topic create`?" in run("creat", "topic").stderr
    assert "See `multiraft --help`." in run("xyzzy").stderr
