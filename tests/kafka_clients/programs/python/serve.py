"""Requests of the harness, a line of JSON each on standard input, answered on standard output.

Contract.  A request is an object with the name of a verb in ``do`` and the verb's arguments; the
answer is ``{"ok": result}`` or ``{"error": text}``.  Keys, values and headers of records are
base64, or null.  This module runs in the environment of a client and imports the standard library
alone.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

#: Name of the one header of every record.
HEADER = "from"


def serve(verbs: Mapping[str, Callable[..., Any]], errors: tuple[type[Exception], ...]) -> None:
    """Answer requests until standard input ends. ``errors``: what the client's calls raise; any
    other error ends the program with its traceback."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": verbs[request.pop("do")](**request)}
        except errors as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def decoded(text: str | None) -> bytes | None:
    """Return the bytes of a key, value or header; null stays null."""
    return None if text is None else base64.b64decode(text)


def encoded(value: bytes | None) -> str | None:
    """Return the text of a key, value or header; null stays null."""
    return None if value is None else base64.b64encode(value).decode()
