"""Examples of the README, extracted so that tests can run them."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def client_example() -> str:
    """Return the first Python block of the README, the client example, as a program."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"),
                        flags=re.DOTALL | re.MULTILINE)
    assert blocks, "README.md has no ```python block"
    return blocks[0]


def console_blocks() -> list[list[str]]:
    """Return the lines of each console block: commands begin with ``$ ``, the rest is output."""
    blocks = re.findall(r"^```console\n(.*?)^```", README.read_text(encoding="utf-8"),
                        flags=re.DOTALL | re.MULTILINE)
    return [block.splitlines() for block in blocks]


def command_of(line: str) -> str:
    """Return a command without prompt and comment; empty for a line of output."""
    return re.sub(r"\s+#.*$", "", line.removeprefix("$ ")).strip() if line.startswith("$ ") else ""


def shell_lines() -> list[str]:
    """Return the command lines of the README's console blocks, without comments and prompts."""
    return [command for block in console_blocks() for line in block
            if (command := command_of(line))]
