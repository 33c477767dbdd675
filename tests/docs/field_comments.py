"""Reasons of settings: the ``#:`` comments above the fields of a dataclass."""

from __future__ import annotations

import ast

from tests.tidy import tree


def reasons(path: str, kind: type) -> dict[str, str]:
    """Return field -> the ``#:`` comment above it; adjacent fields may share one."""
    source = tree.text(path)
    lines = source.splitlines()
    body = next(node for node in ast.parse(source).body
                if isinstance(node, ast.ClassDef) and node.name == kind.__name__).body
    found: dict[str, str] = {}
    before = ""
    for node in body:
        if isinstance(node, ast.AnnAssign):
            comment, at = [], node.lineno - 2
            while lines[at].strip().startswith("#:"):
                comment.insert(0, lines[at].strip()[2:].strip())
                at -= 1
            before = found[node.target.id] = " ".join(comment) or before
    return found


def shown(value: object) -> str:
    """Return a default value in readable units."""
    if type(value) is int and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value:,} ({value >> 20} Mi)"
    return f"{value:,}" if type(value) is int else str(value)
