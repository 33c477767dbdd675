"""Rules for the shape of modules: import cycles and classes with abstract methods."""

from __future__ import annotations

import ast

from tests.tidy import tree
from tests.tidy.findings import Finding
from tests.tidy.imports import imports, targets


def _edges() -> dict[str, dict[str, list[int]]]:
    """Module -> our modules that it imports -> lines.  Imports inside functions and imports for
    type checkers count.  A package's ``__init__`` counts only where it is named."""
    names = {tree.module_name(name): name
             for name in tree.python_files(*tree.PACKAGES, *tree.WORKSHOP)}
    edges: dict[str, dict[str, list[int]]] = {module: {} for module in names}
    for module, name in names.items():
        for found in imports(name):
            wanted = found.names and [f"{found.module}.{each}" for each in found.names]
            inner = [each for each in wanted or () if each in names]
            for target in inner or targets(found):
                if target in names and target != module:
                    edges[module].setdefault(target, []).append(found.line)
    return edges


def circles(edges: dict[str, dict[str, list[int]]]) -> list[set[str]]:
    """Strongly connected components of more than one module (Tarjan).  O(imports)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []
    for root in sorted(edges):
        work = [(root, iter(sorted(edges[root])))] if root not in order else []
        if work:
            order[root] = low[root] = len(order)
            stack.append(root)
        while work:
            module, rest = work[-1]
            for target in rest:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    work.append((target, iter(sorted(edges[target]))))
                    break
                if target in stack:
                    low[module] = min(low[module], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == order[module]:
                    place = stack.index(module)
                    members, stack[place:] = set(stack[place:]), []
                    if len(members) > 1:
                        found.append(members)
    return found


def import_cycles() -> list[Finding]:
    """Imports between modules of one circle."""
    edges = _edges()
    files = {tree.module_name(name): name for name in tree.python_files()}
    return sorted(
        Finding(files[module], line, f"imports {target}, which imports it back, directly or "
                                     f"through {len(members) - 2} other modules; move what both "
                                     f"need into a module of its own")
        for members in circles(edges) for module in members
        for target, lines in edges[module].items() if target in members for line in lines)


def _only_raises(function: ast.AST) -> bool:
    """True if the body is ``raise NotImplementedError`` and perhaps a docstring."""
    body = [node for node in function.body
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    return len(body) == 1 and isinstance(body[0], ast.Raise) and body[0].exc is not None \
        and "NotImplementedError" in ast.unparse(body[0].exc)


def abstract_methods() -> list[Finding]:
    """Methods that only raise ``NotImplementedError``."""
    return sorted(
        Finding(name, node.lineno, f"{node.name} only raises NotImplementedError; pass the "
                                   f"collaborator in, or describe it with a Protocol")
        for name in tree.python_files() for node in tree.definitions(name)
        if not isinstance(node, ast.ClassDef) and _only_raises(node))
