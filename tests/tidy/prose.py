"""The prose of the project: docstrings, comments, pages and the texts of the command line.

Contract.  Each function returns ``Text`` values of one file, in order.  Code inside prose (fenced
blocks and inline code of Markdown, double backquotes of docstrings) is left out by ``words``.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import io
import re
import tokenize
from typing import NamedTuple

from tests.tidy import tree

#: Files whose strings a person reads on a terminal: pattern of the path.
COMMAND_LINE = ("admin_cli/*.py", "node/commands.py", "node/log_commands.py", "*/command.py",
                "chaos/commands.py")

#: Files of Cython; parts that another one includes end in ``.pxi``.
CYTHON = (".pyx", ".pxi")
#: A triple-quoted string that begins a line of a file that the parser cannot read.
QUOTED = re.compile(r'^[ \t]*[rb]?"""(.*?)"""', re.DOTALL | re.MULTILINE)
#: Comments of C headers.
C_COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.DOTALL)
#: A comment of Cython: text that merely contains the character is rare and harmless.
HASH_COMMENT = re.compile(r"#[: ]([^\n]*)")

FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
CODE = re.compile(r"``[^`]*``|`[^`\n]*`")


class Text(NamedTuple):
    """A piece of prose and the line of the file on which it begins."""

    line: int
    text: str


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


@functools.cache
def docstrings(name: str) -> tuple[Text, ...]:
    """Docstrings of a file of Python or Cython."""
    if name.endswith(CYTHON):
        source = tree.text(name)
        return tuple(Text(_line(source, each.start(1)), each[1])
                     for each in QUOTED.finditer(source))
    found = []
    for node in (tree.parsed(name), *tree.definitions(name)):
        prose = ast.get_docstring(node, clean=False)
        if prose is not None:
            found.append(Text(node.body[0].lineno, prose))
    return tuple(sorted(found))


def _merged(lines: list[Text]) -> tuple[Text, ...]:
    """Comments of consecutive lines are one text."""
    found: list[Text] = []
    for line, text in lines:
        if found and line == found[-1].line + found[-1].text.count("\n") + 1:
            found[-1] = Text(found[-1].line, f"{found[-1].text}\n{text}")
        else:
            found.append(Text(line, text))
    return tuple(found)


@functools.cache
def comments(name: str) -> tuple[Text, ...]:
    """Comments of a file of Python, Cython or C; comments of consecutive lines are one text."""
    source = tree.text(name)
    if name.endswith(".h"):
        return tuple(Text(_line(source, each.start()), each[1] or each[2] or "")
                     for each in C_COMMENT.finditer(source))
    if name.endswith((*CYTHON, ".pxd")):
        return _merged([Text(_line(source, each.start()), each[1])
                        for each in HASH_COMMENT.finditer(source)])
    return _merged([Text(each.start[0], each.string.lstrip("#: "))
                    for each in tokenize.generate_tokens(io.StringIO(source).readline)
                    if each.type == tokenize.COMMENT])


def speaks(name: str) -> bool:
    """True if strings of the file are texts of the command line."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in COMMAND_LINE)


@functools.cache
def strings(name: str) -> tuple[Text, ...]:
    """Strings of a Python file that hold several words, docstrings left out."""
    prose = {each for each in docstrings(name)}
    return tuple(sorted(Text(node.lineno, node.value) for node in ast.walk(tree.parsed(name))
                        if isinstance(node, ast.Constant) and isinstance(node.value, str)
                        and " " in node.value and Text(node.lineno, node.value) not in prose))


def words(text: str) -> str:
    """The text with its code blanked, so that positions and lines stay."""
    def blank(found: re.Match) -> str:
        return re.sub(r"[^\n]", " ", found[0])
    return CODE.sub(blank, text)


@functools.cache
def page(name: str) -> Text:
    """A Markdown page without its blocks of code."""
    text = tree.text(name)
    for pattern in (FENCE, INDENTED):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return Text(1, text)


def of_code(name: str) -> tuple[Text, ...]:
    """Docstrings and comments of a file of code, and texts of the command line."""
    texts = comments(name)
    if name.endswith((".py", ".pyi", *CYTHON)):
        texts += docstrings(name)
    if name.endswith(".py") and speaks(name):
        texts += strings(name)
    return texts


def of_everything() -> list[tuple[str, Text]]:
    """Prose of every file of the project, copied files left out."""
    found = []
    for name in tree.with_suffix(".py", ".pyi", *CYTHON, ".pxd", ".h", ".md"):
        if name in tree.FOREIGN:
            continue
        texts = (page(name),) if name.endswith(".md") else of_code(name)
        found += [(name, text) for text in texts]
    return found
