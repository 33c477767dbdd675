"""Rules of CONTRIBUTING.md for docstrings, comments, pages and texts of the command line."""

from __future__ import annotations

import re

from tests.tidy import prose, tree
from tests.tidy.findings import Finding

#: A docstring says what a function does or what a class is; a relative clause says it indirectly.
FIRST_WORDS = ("What", "Who", "Whom", "Whose", "Where", "How", "Whether", "When", "That", "Which")
FIRST = re.compile(rf"\s*({'|'.join(FIRST_WORDS)})\b")

#: A docstring without content of its own.
EMPTY = re.compile(r"\s*See the (?:module|class)(?:'s)? docstring\.?\s*$")

LIFE = "(?:life|lives)"
#: Phrase, as a pattern in which a space is any white space, and what to write instead.
PHRASES = (
    # Pronouns without a noun, and clauses that stand where a noun belongs.
    (r"whoever|whomever", "name the node, the caller or the client"),
    (r"somebody|someone", "name the node, the caller or the client"),
    (r"nobody|no one", "name the node, the caller or the client"),
    (r"anybody|anyone", "name the node, the caller or the client"),
    (r"what is there", "name the files, the entries or the records"),
    (r"(?:goes|go|going|went|gone) on", "continues, resumes, proceeds"),
    (r"any more", "no longer"),
    (r"for ever", "without limit, permanently, until ..."),
    (r"look(?:s|ed|ing)? at", "reads, checks, inspects"),
    (r"(?:is|are|was|were|be|been|being) told", "receives, is notified of"),
    (r"(?:speak|speaks|spoke|speaking) of", "names, refers to, describes"),
    # Metaphors for which the field has a term (docs/glossary.md).
    (r"(?:in|into|take|takes|took|taking|leave|leaves|left|of) office", "leader of a term; publish "
     "or withdraw the leader"),
    (r"seats?|seated|reseat", "member, Progress"),
    (r"asleep|awake|(?:falls?|fell) asleep", "quiesced, active"),
    (r"(?:make|makes|made|making) (?:\w+ )?way", "shed leadership"),
    (r"in doubt|doubtful|doubters?", "recovering head"),
    (r"(?:hold|holds|held|holding) (?:\w+ )?up", "has quorum support, supports"),
    (r"neighbours?", "peer"),
    (rf"(?:earlier|former|previous|new|same|another|other|its|a node's) {LIFE}",
     "incarnation, boot epoch, generation"),
    (r"bury|buries|buried|burying", "tombstone"),
    (r"(?:was|is|were|are|be|been|being) born", "created"),
    (r"torments?|tormented|ailing|fibres?", "fault schedule, disk and clock faults, coroutine"),
    (r"(?:let|lets|letting) in", "admit"),
    (r"(?:is|are|was|were|be|been) sent on", "redirected"),
    (r"(?:stand|stands|stood|standing) still", "is blocked, paused, idle"),
)
PATTERNS = [(re.compile(rf"\b(?:{phrase.replace(' ', '[ ]*' + chr(92) + 's' + '[ ]*')})\b",
                        re.IGNORECASE), instead) for phrase, instead in PHRASES]


def _first_words(names: tuple[str, ...]) -> list[Finding]:
    return [Finding(name, text.line, f"a docstring begins with {found[1]!r}; begin with a verb and "
                                     f"its object, or with a noun phrase for a class or a module")
            for name in names for text in prose.docstrings(name)
            if (found := FIRST.match(text.text))]


def _with_docstrings(*folders: str) -> tuple[str, ...]:
    return tuple(name for name in tree.with_suffix(".py", ".pyi", *prose.CYTHON)
                 if name.split("/")[0] in folders and name not in tree.FOREIGN)


def first_words() -> list[Finding]:
    """Docstrings of the packages that begin with a relative pronoun or an adverb of question."""
    return _first_words(_with_docstrings(*tree.PACKAGES, "benchmarks", "demo", "docs", "tools"))


def first_words_of_tests() -> list[Finding]:
    """Docstrings below ``tests`` that begin with one."""
    return _first_words(_with_docstrings("tests"))


def empty_docstrings() -> list[Finding]:
    """Docstrings that only point to another docstring."""
    return [Finding(name, text.line, "a docstring that only points to another one; say what the "
                                     "class or function is")
            for name in _with_docstrings(*tree.PACKAGES, *tree.WORKSHOP)
            for text in prose.docstrings(name) if EMPTY.match(text.text)]


def phrases() -> list[Finding]:
    """Phrases of ``PHRASES`` in prose of the project."""
    found = []
    for name, (line, text) in prose.of_everything():
        plain = prose.words(text)
        for pattern, instead in PATTERNS:
            found += [Finding(name, line + plain.count("\n", 0, each.start()),
                              f"{' '.join(each[0].split())!r}; instead: {instead}")
                      for each in pattern.finditer(plain)]
    return sorted(found)
