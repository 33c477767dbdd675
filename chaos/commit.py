"""Which commit a run was of.

Contract.  For records that are kept: what was proved, and about what.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

#: Records are written while something is proved; they change nothing of it.
RECORDS = ("soak.jsonl", "runs.jsonl")


def commit_of(directory: Path) -> str:
    """The commit that is checked out, with ``+`` when the tree differs from it; ``unknown`` where
    there is none."""
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(directory), *arguments], capture_output=True,
                              text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/",
                      *(f":(exclude,top)chaos/{name}" for name in RECORDS))
        return git("rev-parse", "--short=12", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
