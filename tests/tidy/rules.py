"""Rules of CONTRIBUTING.md that a program can check; no file is an exception."""

from __future__ import annotations

from collections.abc import Callable

from tests.tidy import references, structure, style
from tests.tidy.findings import Finding

#: Name of a rule, and what finds the places that break it.
RULES: dict[str, Callable[[], list[Finding]]] = {
    "first_words": style.first_words,
    "first_words_of_tests": style.first_words_of_tests,
    "empty_docstrings": style.empty_docstrings,
    "phrases": style.phrases,
    "references": references.dangling,
    "import_cycles": structure.import_cycles,
    "abstract_methods": structure.abstract_methods,
}
