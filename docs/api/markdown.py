"""Docstrings as Markdown.

Contract.  Docstrings of this project are Markdown, but for four habits: an indented block needs no
blank line before it, ``::`` announces one, letters number the items of a list, and a paragraph
that begins with its subject (``Contract.``) needs no blank line either.
"""

from __future__ import annotations

import re

LETTERED = re.compile(r"^ +([a-z])\.(?= )")
#: Subjects of paragraphs.
SUBJECT = re.compile(r"^(Contract|Invariants?|Theory|Transitions|Bounds|Elsewhere)\.(?=\s|$)")
#: The mark of a block that follows: behind a sentence, which keeps a colon, or on its own line.
ANNOUNCES = re.compile(r"(?:(?<=\S)(:)|^:):$", re.MULTILINE)


def as_markdown(docstring: str) -> str:
    """Return the docstring with blank lines before paragraphs and blocks, without ``::``, and with
    bullets before items that letters number."""
    found: list[str] = []
    for line in docstring.splitlines():
        before = found[-1] if found else ""
        begins_block = line.startswith("    ") and not before.startswith((" ", "- "))
        if before.strip() and (begins_block or SUBJECT.match(line)):
            found.append("")
        found.append(SUBJECT.sub(r"**\1.**", LETTERED.sub(r"    - \1.", line)))
    return ANNOUNCES.sub(lambda mark: mark[1] or "", "\n".join(found))


def first_sentence(docstring: str) -> str:
    """Return the first sentence of a docstring, its code in plain text."""
    return re.split(r"(?<=\.)\s", " ".join(docstring.split()))[0].replace("`", "")
