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


def shell_lines() -> list[str]:
    """Return the command lines of the README's console blocks, without comments and prompts."""
    blocks = re.findall(r"^```(?:console|sh|shell|bash)\n(.*?)^```",
                        README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"\s+#.*$", "", line.removeprefix("$ ")).strip()
             for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]
