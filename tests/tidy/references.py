"""References of code and pages to pages, files, headings, decisions, scenarios and anomalies.

Contract.  A reference resolves if what it names is in the repository.  Sections of papers and of
the Raft thesis are outside of it and not checked.
"""

from __future__ import annotations

import functools
import posixpath
import re

from tests.tidy import prose, tree
from tests.tidy.findings import Finding

#: A file by its path or name, but not one behind a host, a variable or a pattern.
FILE = re.compile(r"(?<![\w./*<>{}$~:%-])((?:\.\./)*[\w-][\w./-]*\.(?:md|pyx?|pyi|pxd|pxi))\b"
                  r"(?![\w/{(*])")
DECISION = re.compile(r"\bdecisions?[ /]+\n?[ #]*(\d{4}(?:(?:,| and|, and)\s+\d{4})*)(?![\w-])")
LINKED = re.compile(r"\[(\d{4})\]")
SCENARIO = re.compile(r"\b(S\d{1,2}[a-f]?)\b")
ANOMALY = re.compile(r"\b(A\d{1,2})\b")
HEADING = re.compile(r"([\w./-]+\.md)`*,\s+[#]?\s*[\"*“]([^\"*”]+)[\"*”]")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
#: Names of documents that are no part of the repository.
ELSEWHERE = re.compile(r"\bDESIGN\b|\b[Tt]he blueprint\b|\bof the blueprint\b|"
                       r"\b[Nn]ext issue\b|\bcodebase\.md\b")

#: Where anomalies and scenarios are named; elsewhere the same letters may mean other things.
ANOMALIES_IN = ("chaos/", "tests/chaos/", "docs/checkers.md", "docs/chaos.md", "docs/simulator.md")

#: Files that programs and users make, named in prose as examples: they are not in the repository.
EXAMPLES = ("report.md",)


@functools.cache
def _by_name() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in tree.files():
        found.setdefault(posixpath.basename(name), []).append(name)
    return found


def resolves(name: str, here: str) -> bool:
    """True if a file of the repository has this path, seen from the root, from ``docs`` or from
    the file ``here``; or this name or end of a path; or if it is one of ``EXAMPLES``."""
    if name in EXAMPLES:
        return True
    folder = posixpath.dirname(here)
    if any(posixpath.normpath(posixpath.join(base, name)) in _all_files()
           for base in ("", "docs", folder)):
        return True
    return any(each == name or each.endswith(f"/{name}")
               for each in _by_name().get(posixpath.basename(name), ()))


@functools.cache
def _all_files() -> frozenset[str]:
    return frozenset(tree.files())


@functools.cache
def _decisions() -> frozenset[str]:
    return frozenset(posixpath.basename(name)[:4] for name in tree.files()
                     if name.startswith("docs/decisions/"))


@functools.cache
def _rows(page: str, letter: str) -> frozenset[str]:
    """Ids of the rows of a page's tables."""
    return frozenset(each for cell in re.findall(r"^\| ([^|]+?) \|", tree.text(page), re.MULTILINE)
                     for each in re.findall(rf"\b{letter}\d+[a-f]?\b", cell))


@functools.cache
def _headings(page: str) -> tuple[str, ...]:
    text = prose.FENCE.sub("", tree.text(page))
    return tuple(each.strip() for each in re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def slug(heading: str) -> str:
    """The anchor of a heading, as renderers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def _found_page(name: str, here: str) -> str | None:
    for base in ("", "docs", posixpath.dirname(here)):
        path = posixpath.normpath(posixpath.join(base, name))
        if path in _all_files():
            return path
    return None


def _dangling(name: str, text: str) -> list[tuple[int, str]]:
    """Positions in ``text`` and references that do not resolve."""
    found = [(each.start(), f"names {each[0]!r}, which is not in the repository")
             for each in ELSEWHERE.finditer(text)]
    found += [(each.start(), f"names the file {each[1]!r}, which is not in the repository")
              for each in FILE.finditer(text)
              if not resolves(each[1], name) and "://" not in text[max(0, each.start() - 40):
                                                                   each.start()].split(" ")[-1]]
    for pattern in (DECISION, LINKED):
        found += [(each.start(), f"names the decision {number}, which does not exist")
                  for each in pattern.finditer(text) for number in re.findall(r"\d{4}", each[1])
                  if number not in _decisions()]
    found += [(each.start(), f"names the scenario {each[1]}; docs/testing.md has no such row")
              for each in SCENARIO.finditer(text)
              if each[1] not in _rows("docs/testing.md", "S")]
    if name.startswith(ANOMALIES_IN):
        found += [(each.start(), f"names the anomaly {each[1]}; docs/checkers.md has no such row")
                  for each in ANOMALY.finditer(text)
                  if each[1] not in _rows("docs/checkers.md", "A")]
    for each in HEADING.finditer(text):
        page = _found_page(each[1], name)
        if page is not None and not any(
                title.startswith(" ".join(each[2].split())) for title in _headings(page)):
            found.append((each.start(), f"names the part {each[2]!r} of {page}, which has none"))
    for each in ANCHOR.finditer(text):
        page = _found_page(each[1], name) if each[1] else name
        if page is not None and each[2] not in {slug(title) for title in _headings(page)}:
            found.append((each.start(), f"links to #{each[2]} of {page}, which has no such part"))
    return found


def dangling() -> list[Finding]:
    """References that lead nowhere."""
    found = [Finding(name, line + text.count("\n", 0, position), what)
             for name, (line, text) in prose.of_everything()
             for position, what in _dangling(name, text)]
    return sorted(found)
