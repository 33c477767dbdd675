"""The line that continues an interrupted `consume`: all flags that were given, new positions."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator

import click
import pytest

from admin_cli.console.options import Duration
from admin_cli.failures import ExitCode
from admin_cli.records import continuation
from admin_cli.records.consume import consume
from admin_cli.session import Session
from tests.admin_cli.fakes import FakeClient

#: Flags that choose the records, which the line replaces; `--regex`, whose one topic it names.
REPLACED = {"start", "span", "from_beginning", "regex"}
#: Words that flags without a type of their own take.
WORDS = {"partition": "1", "form": r"%k %v\n", "servers": "127.0.0.1:9101",
         "servers_aliases": "127.0.0.1:9101", "count": "40", "count_alias": "40"}


@pytest.fixture
def run(run, environ):
    """Commands find their cluster in the environment, so that no flag names it."""
    environ["MULTIRAFT_SERVERS"] = "127.0.0.1:9101"
    return functools.partial(run, servers=None)


@pytest.fixture
def two(cluster) -> str:
    """A topic of two partitions, with 7 and 3 records."""
    cluster.topics["t"] = [[(None, b"a%d" % n) for n in range(7)],
                           [(None, b"b%d" % n) for n in range(3)]]
    return "t"


def flags() -> Iterator[tuple[str, list[str]]]:
    """Yield each flag of the command that the line keeps, with a value."""
    for option in consume.params:
        if not isinstance(option, click.Option) or option.name in {*REPLACED, "topic_flags"}:
            continue
        for flag in option.opts:
            yield flag, [flag] if option.is_flag else [flag, word(option)]


def word(option: click.Option) -> str:
    """Return a value that the option takes and does not have by default."""
    if option.name in WORDS:
        return WORDS[option.name]
    if isinstance(option.type, click.Choice):
        return next(each for each in option.type.choices if each != option.default)
    return "7s" if isinstance(option.type, Duration) else "a 'word'"


def line_of(done) -> list[str]:
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Continue: ")]
    return shlex.split(line.removeprefix("Continue: "))


def meaning(words: list[str]) -> dict[str, object]:
    """Return the flags of a command line as the command gets them, with those of the connection."""
    session = Session({})
    with consume.make_context("consume", [*words], obj=session) as ctx:
        given = {**ctx.params, "servers": session.servers_option, "tls": session.tls_options}
        if callable(given["form"]):  # a function for each format: compared as it was typed
            given["form"] = words[words.index("--format") + 1] if "--format" in words else \
                words[words.index("-f") + 1]
        return given


@pytest.mark.parametrize("flag, typed", [*flags()], ids=lambda each: each if isinstance(each, str)
                         else "")
def test_every_flag_that_was_given_is_given_again(run, two, monkeypatch, flag, typed):
    def interrupted(self, topic, number, records, first):
        yield from given(self, topic, number, records, first)
        raise KeyboardInterrupt

    given = FakeClient._batches
    monkeypatch.setattr(FakeClient, "_batches", interrupted)
    done = run("consume", two, *typed)
    assert done.exit_code == ExitCode.INTERRUPTED, done.output
    name, command, topic, *words = line_of(done)
    assert (name, command, topic) == ("multiraft", "consume", "t")
    before, after = meaning(["t", *typed]), meaning(["t", *words])
    read = 3 if "1" in typed else 7
    before.pop("start"), after.pop("start")
    for key in ("count", "count_alias"):  # of two names for it, the line has the first
        if before[key] is not None:
            before["count"], before["count_alias"] = 40 - read, None
    assert after == before


def test_the_command_has_more_flags_than_this_test_replaces():
    assert len([*flags()]) > 25


def test_flags_in_front_of_the_command_are_given_again_behind_it(run, two):
    done = run("--servers", "127.0.0.1:9102", "--tls-ca", "a b", "consume", two, "--follow")
    assert line_of(done)[2:] == ["t", "--from", "0=7,1=3", "--follow", "--servers",
                                 "127.0.0.1:9102", "--tls-ca", "a b"]


def test_a_start_at_the_end_and_f_without_a_format_become_follow(run, two):
    assert line_of(run("consume", two, "-f"))[2:] == ["t", "--from", "0=7,1=3", "--follow"]
    for typed in (["--from", "latest"], ["-o", "end"]):
        *_, start, _offsets, follow = line_of(run("consume", two, *typed))
        assert (start, follow) == ("--from", "--follow")
    done = run("consume", two, "-f", "--rack", "r1")
    assert line_of(done)[-3:] == ["--follow", "--rack", "r1"]


def test_one_topic_that_a_pattern_has_found_is_named(run, two):
    done = run("consume", "-r", "^t$", "--follow", "-q")
    assert line_of(done)[2:] == ["t", "--from", "0=7,1=3", "--follow", "--quiet"]


def test_the_end_of_a_range_stays(run, two, cluster):
    cluster.batch_records = 2
    done = run("consume", two, "-p", "0", "-o", "1:50", "--follow", "--json")
    assert line_of(done)[2:] == ["t", "--offset", "7:50", "--partition", "0", "--follow", "--json"]


def test_each_partition_of_a_range_has_a_line(run, two, monkeypatch):
    done = run("consume", two, "-o", "1:50", "--follow")
    lines = [line for line in done.stderr.splitlines() if "multiraft consume" in line]
    assert lines == ["Continue: multiraft consume t --offset 7:50 --partition 0 --follow",
                     "          multiraft consume t --offset 3:50 --partition 1 --follow"]
    monkeypatch.setattr(continuation, "LINES_MAX", 1)
    assert "multiraft consume" not in run("consume", two, "-o", "1:50", "--follow").stderr
