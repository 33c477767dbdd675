"""Unusual names, typed at a real cluster: a sentence and an exit code for every answer of the
wire."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from admin_cli.main import cli
from admin_cli.session import Session
from tests.admin_cli.console.test_every_parameter import NAMES, NOT_RUN, NUMERIC, TEXTS, is_possible
from tests.admin_cli.tree import typed

SHAPE = {"nodes": 1, "groups": 4, "factor": 1}
#: Commands that would change what the other tests need, or that inspect this machine's nodes.
LEFT_OUT = {("dev",), ("node", "init"), ("node", "start"), ("chaos",), ("log",), ("completion",)}
LARGEST = [str(2**31 - 1), str(2**32 - 1), str(2**63 - 1)]


def is_asked(found) -> bool:
    return found.path not in NOT_RUN and found.path[:1] not in LEFT_OUT \
        and found.path not in LEFT_OUT and "servers" not in found.parameter.name \
        and "tls" not in found.parameter.name


def ask(world, arguments):
    session = Session({}, servers_option=",".join(world.addresses))
    return CliRunner().invoke(cli, arguments, obj=session, prog_name="multiraft", input=b"")


def assert_sentence(result) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == 0 or result.stderr.strip()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", result.output)


@pytest.mark.parametrize("found", list(filter(is_asked, NAMES)), ids=str)
def test_odd_text_is_refused_or_not_found(world, tmp_path, found):
    for text in TEXTS.values():
        result = ask(world, typed(found, text, str(tmp_path / "none")))
        assert_sentence(result)
        assert "no answer" not in result.stderr


@pytest.mark.parametrize("found", list(filter(is_asked, NUMERIC)), ids=str)
def test_the_largest_numbers_are_refused_or_not_found(world, tmp_path, found):
    if not isinstance(found.parameter.type, click.IntRange):
        return
    for value in LARGEST:
        if is_possible(found, value):
            assert_sentence(ask(world, typed(found, value, str(tmp_path / "none"))))
