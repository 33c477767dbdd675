"""Runner of golden scripts: commands, a line ``----``, and their recorded output.

A script is a text file of blocks::

    # why this exists
    verb argument key=value
    ----
    what it printed when it was recorded

Comments and blank lines between blocks are kept.  Several command lines may share one output.  An
output ends at the first blank line.  ``MULTIRAFT_REWRITE=1`` records the outputs anew; only commit
the change if you understand what caused it.  Under CI rewriting is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SEPARATOR = "----"

#: One script, one idea: longer ones are not read.
LINES_MAX = 200


class ScriptError(Exception):
    """A script that cannot be run; the message names file and line."""


@dataclass
class Command:
    """One command line."""

    line: int
    verb: str
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    def node(self, position: int = 0) -> int:
        """Return the argument ``n3`` as 3."""
        return self._id("n", position)

    def group(self, position: int = 1) -> int:
        """Return the argument ``g2`` as 2."""
        return self._id("g", position)

    def _id(self, letter: str, position: int) -> int:
        if position >= len(self.arguments) or not self.arguments[position].startswith(letter):
            raise ScriptError(f"line {self.line}: {self.verb} wants {letter}<number> as argument "
                              f"{position + 1}")
        return int(self.arguments[position][1:])

    def optional_node(self, name: str) -> int:
        """Return the option ``name=n3`` as 3; 0 without it."""
        return int(self.options[name][1:]) if name in self.options else 0

    def number(self, name: str, default: int) -> int:
        """Return an option as a number."""
        return int(self.options.get(name, default))


@dataclass
class Block:
    """Commands and their recorded output, with the text that stands before them."""

    before: list[str]
    commands: list[str]
    first_line: int
    output: list[str]


def parse_command(text: str, line: int) -> Command:
    """Return ``verb a b key=value`` as a ``Command``."""
    words = text.split()
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    return Command(line, words[0], [word for word in words[1:] if "=" not in word], options)


def parse(text: str, name: str) -> tuple[list[Block], list[str]]:
    """Return the blocks of a script, and the text after the last one."""
    lines = text.splitlines()
    if len(lines) > LINES_MAX:
        raise ScriptError(f"{name}: {len(lines)} lines exceed the limit of {LINES_MAX}")
    blocks: list[Block] = []
    before: list[str] = []
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            before.append(lines[at])
            at += 1
            continue
        first, commands, output = at + 1, [], []
        while at < len(lines) and lines[at] != SEPARATOR:
            if not lines[at].strip():
                raise ScriptError(f"{name}:{at + 1}: a command without {SEPARATOR}")
            commands.append(lines[at])
            at += 1
        at += 1
        while at < len(lines) and lines[at].strip():
            output.append(lines[at])
            at += 1
        blocks.append(Block(before, commands, first, output))
        before = []
    return blocks, before


def run(path: Path, execute: Callable[[Command], list[str]]) -> None:
    """Run a script and compare, or record.  Raises ``AssertionError`` at the first difference."""
    blocks, rest = parse(path.read_text(), path.name)
    rewriting = os.environ.get("MULTIRAFT_REWRITE") == "1"
    if rewriting and os.environ.get("CI"):
        raise ScriptError("golden scripts are not rewritten under CI")
    recorded: list[str] = []
    for block in blocks:
        output: list[str] = []
        for offset, text in enumerate(block.commands):
            output += execute(parse_command(text, block.first_line + offset))
        if not rewriting:
            assert output == block.output, (
                f"{path.name}:{block.first_line}: {' / '.join(block.commands)}\n"
                + "recorded:\n  " + "\n  ".join(block.output)
                + "\nnow:\n  " + "\n  ".join(output))
        recorded += [*block.before, *block.commands, SEPARATOR, *output]
        if block is not blocks[-1] or rest:
            recorded.append("")
    if rewriting:
        while rest and not rest[0].strip():
            rest = rest[1:]
        text = "\n".join(_without_doubled_blanks([*recorded, *rest])) + "\n"
        if text != path.read_text():
            path.write_text(text)


def _without_doubled_blanks(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept
