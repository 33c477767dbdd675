"""docs/operations.md as blocks that can be typed.

Contract.  A console block belongs to the place that the comment above it names: ``<!-- on: desk
-->``, ``on: 1 2 3`` (machines), ``on: tree`` (the source tree); after a comma, the ``state`` that
the cluster must be in.  A block without a comment is for a cluster in ``./dev-cluster``.  A block
below ``<!-- file: NAME -->`` is that file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations.md"

_PART = re.compile(
    r"^#+ (?P<heading>[^\n]+)$|^<!-- (?P<comment>[^\n]+) -->$"
    r"|^```console\n(?P<console>.*?)^```$|^```toml\n(?P<toml>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Lines to type.  ``places`` is empty for the cluster in ``./dev-cluster``."""

    heading: str
    lines: tuple[str, ...]
    places: tuple[str, ...] = ()
    state: str = ""

    @property
    def script(self) -> str:
        """Return the lines without the prompts."""
        return "\n".join(line.removeprefix("$ ") for line in self.lines)


def blocks() -> list[Block]:
    """Return every console block of the page, in order."""
    found, heading, comment = [], "", ""
    for part in _PART.finditer(PAGE.read_text(encoding="utf-8")):
        heading = part["heading"] or heading
        if part["console"] is not None:
            where, _, state = comment.removeprefix("on: ").partition(", ")
            found.append(Block(heading, tuple(part["console"].splitlines()), tuple(where.split()),
                               state))
        comment = part["comment"] or ""
    return found


def files() -> dict[str, str]:
    """Return every file that the page shows, by name."""
    found, comment = {}, ""
    for part in _PART.finditer(PAGE.read_text(encoding="utf-8")):
        if part["toml"] is not None and comment.startswith("file: "):
            found[comment.removeprefix("file: ")] = part["toml"]
        comment = part["comment"] or ""
    return found
