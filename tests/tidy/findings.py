"""A place of the project that breaks a rule."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A place that breaks a rule, and what to write instead."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.text}"
