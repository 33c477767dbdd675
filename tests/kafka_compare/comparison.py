"""Differences between the outcomes of two servers, by request and field.

Contract.  ``differences`` groups the fields of all requests that have different values, over the
versions of a request.  Those that ``known`` lists are expected.  One that is listed and does not
occur is reported too: the list says what is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tests.kafka_compare.outcome import Outcome

Outcomes = Mapping[tuple[str, int], Outcome]
#: Values of a field or an element that only one of two responses has.
NOTHING, THERE = "nothing", "something"
#: Path of what happens to the connection, and its value if a response arrives.
CONNECTION, ANSWERS = "", "answers"
ERROR = "error_code"


class Known(NamedTuple):
    """A difference that is expected: patterns of the request's label and of the field's path.
    ``reason``: key of its row in ``docs/kafka.md``."""

    label: str
    path: str
    reason: str


@dataclass
class Difference:
    """A field with different values: those of Kafka and of a node, and the versions."""

    label: str
    path: str
    kafka: Any
    node: Any
    versions: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        first, last = min(self.versions), max(self.versions)
        versions = "" if last < 0 else f" v{first}" if first == last else f" v{first}-{last}"
        return (f"{self.label}{versions}: {self.path or 'the connection'}: Kafka {self.kafka!r}, "
                f"here {self.node!r}")


def differences(kafka: Outcomes, node: Outcomes) -> list[Difference]:
    """Return the differences, in the order of the requests, each at one place: what follows from a
    different error, from a response that is missing, or from an element that is missing, is not
    told again."""
    assert kafka.keys() == node.keys(), f"not the same requests: {kafka.keys() ^ node.keys()}"
    found: dict[tuple[str, str, str], Difference] = {}
    for (label, version), left in kafka.items():
        for path, values in _different(left, node[label, version]):
            key = label, path, repr(values)
            found.setdefault(key, Difference(label, path, *values)).versions.append(version)
    return list(found.values())


def _different(left: Outcome, right: Outcome) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the paths with different values, and these."""
    if (CONNECTION in left) != (CONNECTION in right):
        yield CONNECTION, (left.get(CONNECTION, ANSWERS), right.get(CONNECTION, ANSWERS))
        return
    paths = list(dict.fromkeys([*left, *right]))
    errors = {path.removesuffix(ERROR) for path in paths if path.endswith(ERROR)
              and path in left and path in right and left[path] != right[path]}
    lacking: set[str] = set()
    for path in paths:
        if path.endswith(".count") or left.get(path, NOTHING) == right.get(path, NOTHING):
            continue
        if any(path.startswith(each) and path != each + ERROR for each in errors):
            continue
        if path in left and path in right:
            yield path, (left[path], right[path])
            continue
        element = _missing_element(path, right if path in left else left)
        if element not in lacking:
            lacking.add(element)
            yield element, (THERE, NOTHING) if path in left else (NOTHING, THERE)


def _missing_element(path: str, other: Outcome) -> str:
    """Return the outermost element of an array on the way to ``path`` that ``other`` lacks, or the
    path itself."""
    at = path.find("]")
    while at >= 0:
        element = path[:at + 1]
        if not any(each.startswith(element) for each in other):
            return element
        at = path.find("]", at + 1)
    return path


def judged(found: Iterable[Difference], known: Iterable[Known]
           ) -> tuple[list[Difference], dict[Known, list[Difference]]]:
    """Return the differences that no row of ``known`` expects, and those that each row does."""
    unexpected: list[Difference] = []
    expected: dict[Known, list[Difference]] = {row: [] for row in known}
    for each in found:
        rows = [row for row in expected if fnmatchcase(each.label, row.label)
                and fnmatchcase(each.path, row.path)]
        if rows:
            expected[rows[0]].append(each)
        else:
            unexpected.append(each)
    return unexpected, expected
