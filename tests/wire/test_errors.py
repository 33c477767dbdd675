"""Codes and exceptions: one table, and ambiguity is never mistaken for a refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multiraft.wire import errors
from multiraft.wire.errors import AmbiguousOutcome, Code, ErrorDetail, RequestError, exception_for

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


@pytest.mark.parametrize("code", [code for code in Code if code])
def test_every_code_has_its_exception_and_carries_its_detail(code):
    detail = ErrorDetail("why", leader=3)
    error = exception_for(code, detail)
    assert error.code == code
    assert error.detail == detail
    assert str(error) == "why"


def test_only_ambiguous_is_not_definite_and_it_is_no_refusal():
    assert [code for code, kind in errors.EXCEPTIONS.items() if not kind.definite] == [
        Code.AMBIGUOUS]
    assert not issubclass(AmbiguousOutcome, RequestError)
    assert all(issubclass(kind, RequestError) for code, kind in errors.EXCEPTIONS.items()
               if code != Code.AMBIGUOUS)


def test_a_code_from_the_future_is_ambiguous():
    error = exception_for(4711, ErrorDetail("something new"))
    assert isinstance(error, AmbiguousOutcome)
    assert "4711" in str(error) and "something new" in str(error)


def test_the_document_has_the_same_table():
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| ([^|]*) \| ([^|]*) \|",
                      PROTOCOL.read_text(), flags=re.MULTILINE)
    documented = {int(number): (name, "yes" in definite, "yes" in retriable)
                  for number, name, definite, retriable in rows if int(number)}
    assert documented == {int(code): (code.name, kind.definite, kind.retriable)
                          for code, kind in errors.EXCEPTIONS.items()}


def test_the_error_tree_in_the_docstring_names_every_type():
    named = set(re.findall(r"[A-Z][A-Za-z]+", errors.__doc__.split("Contract.")[0]))
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)
               and issubclass(value, errors.MultiRaftError) and not name.startswith("_")}
    assert defined <= named
