"""Both twins have one surface: names, parameters, defaults, annotations, docstrings.

Contract.  The reference is the specification.  Whatever ``help`` shows of it, it shows of the
compiled twin: only annotations of constructors are missing there, because an extension class states
its parameters in a form of CPython's that has none.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pydoc
import typing
from pathlib import Path

import pytest

from multiraft import _core, core
from multiraft.codec import reference as _reference
from multiraft.codec import values

FUNCTIONS = sorted(name for name in _reference.__all__ if callable(getattr(_reference, name))
                   and not inspect.isclass(getattr(_reference, name)))
VALUES = sorted(name for name in _reference.__all__ if hasattr(values, name))
CLASSES = sorted(name for name in _reference.__all__ if inspect.isclass(getattr(_reference, name))
                 and name not in VALUES)
MEMBERS = [f"{name}.{member}" for name in CLASSES for member in vars(getattr(_reference, name))
           if not member.startswith("_")]


def found(twin, name: str):
    """Return a function, a class or a member of a class of one twin."""
    return functools.reduce(getattr, name.split("."), twin)


def test_both_twins_export_the_same_names():
    assert FUNCTIONS and VALUES and CLASSES and MEMBERS
    assert sorted(_core.__all__) == sorted(_reference.__all__) == sorted(
        [*FUNCTIONS, *VALUES, *CLASSES, "SOURCE_DIGEST"])


@pytest.mark.parametrize("name", VALUES)
def test_both_twins_return_the_same_values(name):
    assert getattr(_core, name) is getattr(_reference, name) is getattr(values, name)
    assert inspect.getdoc(getattr(values, name))


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_public_members(name):
    compiled, reference = getattr(_core, name), getattr(_reference, name)
    assert ({each for each in dir(compiled) if not each.startswith("_")}
            == {each for each in dir(reference) if not each.startswith("_")})


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_have_the_same_parameters(name):
    compiled = inspect.signature(getattr(_core, name))
    reference = inspect.signature(getattr(_reference, name))
    assert ([(each.name, each.kind, each.default) for each in compiled.parameters.values()]
            == [(each.name, each.kind, each.default) for each in reference.parameters.values()])


@pytest.mark.parametrize("name", [*FUNCTIONS, *MEMBERS])
def test_functions_have_the_same_signature(name):
    compiled, reference = found(_core, name), found(_reference, name)
    if isinstance(reference, property):
        assert inspect.isgetsetdescriptor(compiled)
        return
    assert inspect.signature(compiled) == inspect.signature(reference)
    hints = typing.get_type_hints(reference)
    assert hints == typing.get_type_hints(compiled)
    parameters = [each for each in inspect.signature(reference).parameters if each != "self"]
    assert sorted(hints) == sorted([*parameters, "return"]), "an annotation is missing"


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES, *MEMBERS])
def test_functions_and_classes_have_the_same_docstring(name):
    documented = inspect.getdoc(found(_reference, name))
    assert documented and inspect.getdoc(found(_core, name)) == documented


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_help_shows_signature_and_docstring(twin, name):
    described = getattr(twin, name)
    shown = pydoc.plain(pydoc.render_doc(described))
    signature = str(inspect.signature(described))
    assert f"{name}{signature}" in shown or signature == "()"  # pydoc shows no empty one
    assert inspect.getdoc(described).splitlines()[0] in shown


def test_the_chooser_offers_the_whole_surface():
    twin = _core if core.check_batch is _core.check_batch else _reference
    assert all(getattr(core, name) is getattr(twin, name) for name in _reference.__all__)


def test_the_stub_takes_its_surface_from_the_reference():
    stub = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())
    assert [ast.unparse(node) for node in stub.body[1:]] == [
        "from multiraft.codec.reference import *",
        "from multiraft.codec.reference import __all__ as __all__"]
