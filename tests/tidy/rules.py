"""Rules with exceptions, and the lists of their exceptions, which only shrink.

Contract.  ``exceptions/NAME.txt`` has a line ``path: count`` for each file that breaks the rule
NAME.  A count below the truth is a new finding, a count above it is a list that was not lowered:
both are complaints.  ``rewritten`` returns the lists as they should be, or refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.tidy import references, structure, style, tree
from tests.tidy.findings import Finding

FOLDER = Path(__file__).parent / "exceptions"
WRITE = "python -m tests.tidy.exceptions --write"

#: Name of a rule, which is the name of its list, and what finds the places that break it.
RULES: dict[str, Callable[[], list[Finding]]] = {
    "first_words": style.first_words,
    "first_words_of_tests": style.first_words_of_tests,
    "empty_docstrings": style.empty_docstrings,
    "phrases": style.phrases,
    "references": references.dangling,
    "import_cycles": structure.import_cycles,
    "abstract_methods": structure.abstract_methods,
}


class Refused(Exception):
    """A count would rise; the message names file, counts and findings."""


def read(name: str) -> dict[str, int]:
    """The list of a rule; empty when there is no file.  Raises ``ValueError`` for a line that is
    not ``path: count`` with a count of at least 1."""
    file = FOLDER / f"{name}.txt"
    counts: dict[str, int] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        path, _, count = line.rpartition(": ")
        if not path or path in counts or int(count) < 1:
            raise ValueError(f"{file.name}: {line!r} is no line `path: count`, or a second one")
        counts[path] = int(count)
    return counts


def written(counts: Mapping[str, int]) -> str:
    """The text of a list, sorted by path."""
    return "".join(f"{path}: {counts[path]}\n" for path in sorted(counts) if counts[path])


def compare(name: str, found: list[Finding], allowed: Mapping[str, int]) -> list[str]:
    """Complaints about the findings of the rule ``name`` and about its list."""
    truth = Counter(finding.path for finding in found)
    complaints = []
    for path in sorted({*truth, *allowed}):
        if truth[path] > allowed.get(path, 0):
            complaints.append(f"{path} has {truth[path]} places that break the rule {name}, "
                              f"{allowed.get(path, 0)} are listed; change those that are new:")
            complaints += [f"  {finding}" for finding in found if finding.path == path]
        elif truth[path] < allowed.get(path, 0):
            complaints.append(f"{path} has {truth[path]} places that break the rule {name}, "
                              f"exceptions/{name}.txt says {allowed[path]}; lower it: {WRITE}")
    return complaints


def rewritten(name: str, found: list[Finding], allowed: Mapping[str, int],
              moved: bool = False) -> dict[str, int]:
    """The list of the rule ``name`` with the counts of today.  Raises ``Refused`` when the count of
    a file would rise; with ``moved`` only when the sum of all would (files were moved or split)."""
    truth = Counter(finding.path for finding in found)
    if moved:
        if sum(truth.values()) > sum(allowed.values()):
            raise Refused(f"{name}: {sum(truth.values())} places in all, "
                          f"{sum(allowed.values())} are listed")
        return dict(truth)
    risen = compare(name, found, {path: min(count, truth[path])
                                  for path, count in allowed.items()})
    if risen:
        raise Refused("\n".join(risen))
    return dict(truth)


def list_names() -> list[str]:
    """Names of the lists that exist."""
    return sorted(file.stem for file in FOLDER.glob("*.txt"))


def unknown_files(allowed: Mapping[str, int]) -> list[str]:
    """Paths of a list that are no files of the project."""
    return sorted(set(allowed) - set(tree.files()))
