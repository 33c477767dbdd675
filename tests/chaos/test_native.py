"""What mypyc makes of the sources is what the interpreter makes of them."""

from __future__ import annotations

import ast
from pathlib import Path

from chaos import native

ROOT = Path(__file__).parents[2]


def classes(path: str) -> list[tuple[str, set[str]]]:
    """The classes of a module, and what each defines."""
    return [(f"{path}: {node.name}",
             {each.name for each in node.body if isinstance(each, ast.FunctionDef)})
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.ClassDef)]


def test_what_has_a_length_says_whether_it_is_true(monkeypatch):
    """mypyc asks ``__bool__`` alone: an index whose batches had all been cut was true, and a read
    was told that its offset is too low.  Seed 790000100354, which the interpreter passes."""
    monkeypatch.chdir(ROOT)
    defined = dict(one for path in native.modules() for one in classes(path))
    measured = {name for name, methods in defined.items() if "__len__" in methods}
    assert measured, "no class has a length any more"
    assert [name for name in measured if "__bool__" not in defined[name]] == []
