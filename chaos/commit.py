"""The commit that a run tested.

Contract.  For records that are kept: they name the commit for which something was proved.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

#: Files that runs append to; their changes do not affect what is tested.
RECORDS = ("soak.jsonl", "runs.jsonl")


def commit_of(directory: Path) -> str:
    """Return the commit that is checked out, with ``+`` when the tree differs from it; ``unknown``
    without a repository."""
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
