"""Text for a terminal.

Contract.  Names, addresses and sentences may be hostile: they come from other clients, other nodes
and the command line.  Displayed text has no control characters, so that it cannot move the cursor
or recolour the screen, and no lone surrogates, which no encoding accepts.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence

#: C0 but for newline and tab, DEL, C1, surrogates, and characters that reverse the direction of
#: text.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return ``text`` with control characters and surrogates as escapes; newlines and tabs stay."""
    return _UNPRINTABLE.sub(_escaped, text)


def in_one_line(text: str) -> str:
    """Return ``text`` with control characters, newlines, tabs and surrogates as escapes."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def nearest(word: str, words: Sequence[str]) -> str | None:
    """Return the word of ``words`` that was probably meant; None = none is similar."""
    found = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return found[0] if found else None


def json_printable(text: str) -> str:
    """Return the JSON ``text`` with control characters, except newlines, as JSON's own escapes: its
    meaning stays."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shell_word(value: object) -> str:
    """Return a value, such as a path, as one word of a command that a user copies into a shell."""
    return shlex.quote(str(value))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
