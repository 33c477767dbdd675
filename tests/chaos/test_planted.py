"""Planted bugs: what planting does, and that the fast layers catch theirs."""

from __future__ import annotations

import importlib

import pytest

from chaos.planted import bug
from chaos.planted.catalogue import BUGS


@pytest.mark.parametrize("name", sorted(BUGS))
def test_the_code_that_a_bug_replaces_is_there(name):
    with bug.planted(BUGS[name]):
        pass


def test_planting_ends_with_its_context():
    function = importlib.import_module("multiraft.log").GroupLog.truncate
    shipped = function.__code__
    with bug.planted(BUGS["aba"]):
        assert function.__code__ is not shipped
        assert function.__code__.co_varnames == shipped.co_varnames
    assert function.__code__ is shipped


@pytest.mark.parametrize("change", [
    {"old": "no such text"}, {"old": "e"}, {"function": "GroupLog.nothing"},
    {"function": "GroupLog"}, {"module": "multiraft.nowhere"}])
def test_a_bug_whose_code_is_gone_is_an_error(change):
    with pytest.raises(bug.StaleBug, match="aba"):
        with bug.planted(BUGS["aba"]._replace(**change)):
            pass
