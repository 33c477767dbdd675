"""Typing errors in each parameter of each command: a sentence and the right exit code."""

from __future__ import annotations

import os
import re

import click
import pytest

from admin_cli.console.options import Bytes, Duration, Start, Time
from admin_cli.failures import PLAN_USAGE, ExitCode
from admin_cli.plans.rebalance import _HasPlanExits
from admin_cli.plans.whatif import JoiningNode
from tests.admin_cli.tree import Found, commands, parameters, typed

#: Numbers that cannot be, and what only Python takes for numbers.
IMPOSSIBLE = ["nan", "inf", "-inf", "-1", "-0.5", str(2**64), str(10**23), "1e400", "9" * 5_000,
              "", "١", "1_0", "0x10", "true", "one"]
#: More than most numbers can be.
LARGE = [str(2**31), str(2**32), str(2**63 - 1), str(2**63)]
NUMBERS = (click.types.IntParamType, click.types.FloatParamType)
QUANTITIES = (*NUMBERS, Bytes, Duration, Start, Time, JoiningNode)
#: What a command line may end with that names no file and no number of this world.
SAID = {ExitCode.FAILED, ExitCode.USAGE, ExitCode.NOT_FOUND, 3, PLAN_USAGE}

NUMERIC = [found for found in parameters() if isinstance(found.parameter.type, NUMBERS)]
#: How to speak to a cluster is read by the same code for every command.
EVERYWHERE = ("--tls", "--servers", "--server")


def is_own(found: Found) -> bool:
    """Tell whether the parameter is the command's own, or this command stands for all others."""
    return found.path == ("topic", "list") or not found.parameter.opts[0].startswith(EVERYWHERE)


QUANTIFIED = [found for found in parameters() if isinstance(found.parameter.type, QUANTITIES)]
PATHS = [found for found in parameters() if is_own(found)
         and (isinstance(found.parameter.type, (click.Path, click.File))
              or found.parameter.name in ("directory", "output", "snapshot", "report", "folder",
                                          "tls_ca", "tls_cert", "tls_key"))]
#: Places where a cluster can be, and would be started.
MAY_BE_MADE = ("a directory", "bytes", "lines", "nobody's", "empty", "closed")
#: Real runs of half a minute and more, and nodes in the foreground: what they get is read first.
NOT_RUN = {("chaos", "run"), ("chaos", "sim"), ("chaos", "planted"), ("chaos", "faults"),
           ("metrics", "pipeline")}


def usage_code(found: Found) -> int:
    return PLAN_USAGE if isinstance(found.command, _HasPlanExits) or \
        found.path[0] == "rebalance" or found.path[:2] == ("group", "pool") else ExitCode.USAGE


def is_possible(found: Found, value: str) -> bool:
    """Tell whether the parameter's type takes it."""
    try:
        found.parameter.type.convert(value, found.parameter, click.Context(found.command))
    except click.UsageError:
        return False
    return True


def assert_sentence(result) -> None:
    error = result.exception
    if isinstance(error, AttributeError) and "'FakeClient'" in str(error):
        return  # it was taken, and asked for: not of what the fake client knows
    assert error is None or isinstance(error, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert result.exit_code == 0 or result.stderr.strip()


def test_the_tree_is_seen():
    assert len(list(commands())) > 60
    assert len(NUMERIC) > 60
    assert len(PATHS) > 20


@pytest.mark.parametrize("found", NUMERIC, ids=str)
def test_every_number_has_a_range(found):
    kind = found.parameter.type
    assert isinstance(kind, (click.IntRange, click.FloatRange))
    assert kind.min is not None and kind.max is not None
    assert kind.max < 2**64


@pytest.mark.parametrize("found", QUANTIFIED, ids=str)
def test_a_number_that_cannot_be_is_a_usage_error(run, tmp_path, found):
    for value in IMPOSSIBLE:
        assert not is_possible(found, value), value
        result = run(*typed(found, value, str(tmp_path / "none")))
        assert_sentence(result)
        assert result.exit_code == usage_code(found), value
        assert "Invalid value" in result.stderr, value
        assert len(result.stderr) < 1_500


@pytest.mark.parametrize("found", NUMERIC, ids=str)
def test_a_large_number_is_refused_or_asked_for(run, tmp_path, cluster, found):
    cluster.topics["t"] = [[]]
    for value in LARGE:
        possible = is_possible(found, value)
        if possible and found.path in NOT_RUN:
            continue
        result = run(*typed(found, value, str(tmp_path / "none")))
        assert_sentence(result)
        assert possible or result.exit_code == usage_code(found), value


def places(tmp_path) -> dict[str, str]:
    file = tmp_path / "file"
    file.write_bytes(b"\xff\x00 no plan, no policy, no lines\n")
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    return {"a file": str(file), "below a file": str(file / "below"), "/dev/null": "/dev/null",
            "/proc/nothing": "/proc/nothing", "a long name": str(tmp_path / ("d" * 300)),
            "closed": str(closed / "below"), "a directory": str(tmp_path), "empty": "",
            "bytes": os.fsdecode(bytes(tmp_path) + b"/caf\xe9"), "nobody's": "~nobody-of-this-name",
            "lines": str(tmp_path / "a\nb"), "/dev/full": "/dev/full",
            "a link to itself": _loop(tmp_path)}


def _loop(tmp_path) -> str:
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    return str(tmp_path / "loop")


@pytest.mark.parametrize("found", [found for found in PATHS if found.path not in NOT_RUN], ids=str)
def test_an_odd_path_is_a_sentence(run, cluster, tmp_path, found):
    cluster.topics["t"] = [[]]
    for kind, place in places(tmp_path).items():
        if found.path == ("dev", "up") and kind in MAY_BE_MADE:
            continue
        result = run(*typed(found, place, str(tmp_path / "none")), input=b"")
        assert_sentence(result)
        assert result.exit_code == 0 or result.exit_code in SAID, kind
    (tmp_path / "closed").chmod(0o700)


TEXTS = {"empty": "", "long": "x" * 5_000, "bytes": "caf\udce9", "lines": "a\nb", "tab": "a\tb",
         "escape": "\x1b[31mred\x1b]0;title\x07", "c1": "a\x9b31m", "no space": "a b",
         "wide": "日本語" * 100, "braces": "{0}%s%(x)s", "dots": "../../etc/passwd"}
NAMES = [found for found in parameters() if is_own(found) and found not in (*NUMERIC, *PATHS)
         and not isinstance(found.parameter.type, click.Choice)]


@pytest.mark.parametrize("found", [found for found in NAMES if found.path not in NOT_RUN], ids=str)
def test_odd_text_is_a_sentence_and_no_escape_sequence(run, tmp_path, found):
    servers = None if "servers" in found.parameter.name else "127.0.0.1:9101"
    for text in TEXTS.values():
        result = run(*typed(found, text, str(tmp_path / "none")), input=b"", servers=servers)
        assert_sentence(result)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", result.output)
