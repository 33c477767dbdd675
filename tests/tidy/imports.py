"""Import statements of the project's Python files, as the tidy tests see them."""

from __future__ import annotations

import ast
import functools
from typing import NamedTuple

from tests.tidy import tree


class Import(NamedTuple):
    """One import statement's target and where it stands."""

    module: str
    names: tuple[str, ...]
    line: int
    typing_only: bool
    in_function: bool


@functools.cache
def imports(name: str) -> list[Import]:
    """Every import of a Python file, relative ones made absolute."""
    package = tree.module_name(name).split(".")
    if not name.endswith("__init__.py"):
        package = package[:-1]
    found: list[Import] = []

    def walk(node: ast.AST, typing_only: bool, in_function: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, (), node.lineno, typing_only, in_function)
                         for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found.append(Import(module, tuple(alias.name for alias in node.names), node.lineno,
                                typing_only, in_function))
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            walk(child, typing_only or guard, inside)

    walk(tree.parsed(name), False, False)
    return found


@functools.cache
def our_modules() -> frozenset[str]:
    """Every module that the distribution installs."""
    compiled = {"multiraft._core", "multiraft.kafka._codec"}
    return frozenset(compiled | {tree.module_name(name)
                                 for name in tree.python_files(*tree.PACKAGES)})


def targets(found: Import) -> list[str]:
    """``from multiraft import types`` reaches ``multiraft.types``; attributes reach nothing."""
    modules = our_modules()
    inner = [f"{found.module}.{each}" for each in found.names
             if f"{found.module}.{each}" in modules]
    return inner or [found.module]
