"""The map of the modules in docs/architecture.md: a line per folder, with its modules.

Contract.  A line is ``- `folder/`: a sentence. Modules: `one`, `two`.``  The sentence is written by
hand and kept; the modules are those of the folder.  A folder that is new gets the first sentence of
its ``__init__.py``.  ``python -m tests.tidy.package_map`` rewrites the lines; a test compares.
"""

from __future__ import annotations

import ast
import re

from tests.tidy import tree

PAGE = "docs/architecture.md"
HEADING = "## Map of the modules"
LINE = re.compile(r"^- `(\S+)/`: (.+?)(?: Modules: (.+)\.)?$", re.MULTILINE)
#: What the map covers; ``tests/README.md`` has the tests.
FOLDERS = (*tree.PACKAGES, "benchmarks", "demo", "docs", "tools")


def modules() -> dict[str, list[str]]:
    """Folder -> names of its modules.  The compiled module counts, copied files do not."""
    found: dict[str, list[str]] = {}
    for name in tree.with_suffix(".py", ".pyx"):
        folder, _, file = name.rpartition("/")
        if name.split("/")[0] in FOLDERS and name not in tree.FOREIGN:
            found.setdefault(folder, [])
            if file != "__init__.py":
                found[folder].append(file.rpartition(".")[0])
    return {folder: sorted(names) for folder, names in sorted(found.items())}


def section(text: str) -> str:
    """The part of the page below the heading."""
    return text.partition(f"{HEADING}\n")[2].partition("\n## ")[0]


def sentences(text: str) -> dict[str, str]:
    """Folder -> its sentence on the page."""
    return {each[1]: each[2] for each in LINE.finditer(section(text))}


def first_sentence(folder: str) -> str:
    """First sentence of the docstring of the folder's ``__init__.py``; empty without one."""
    name = f"{folder}/__init__.py"
    prose = ast.get_docstring(tree.parsed(name)) if name in tree.files() else None
    return re.split(r"(?<=\.)\s", " ".join((prose or "").split()))[0]


def lines(text: str) -> list[str]:
    """The lines that the page should have, with the sentences that ``text`` has."""
    known = sentences(text)
    found = []
    for folder, names in modules().items():
        sentence = known.get(folder) or first_sentence(folder)
        listed = f" Modules: {', '.join(f'`{name}`' for name in names)}." if names else ""
        found.append(f"- `{folder}/`: {sentence}{listed}")
    return found


def rewritten(text: str) -> str:
    """The page with its map as it should be."""
    before, heading, after = text.partition(f"{HEADING}\n")
    assert heading, f"{PAGE} has no part {HEADING!r}"
    old = section(text)
    intro = old.partition("\n- ")[0].rstrip("\n")
    return before + heading + intro + "\n\n" + "\n".join(lines(text)) + "\n" + after[len(old):]


if __name__ == "__main__":
    (tree.ROOT / PAGE).write_text(rewritten(tree.text(PAGE)))
