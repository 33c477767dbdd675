"""Files of the project for the tidy tests: those that git tracks or would track.

Contract.  Paths are relative to the root, with forward slashes, sorted.  A file that is new and
not ignored counts, so that a rule speaks before the commit and not after it.
"""

from __future__ import annotations

import ast
import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Packages that the distribution installs.
PACKAGES = ("multiraft", "placement", "node", "admin_cli", "spark", "pyspark_multiraft", "chaos")

#: Folders of Python that is ours but not installed.
WORKSHOP = ("benchmarks", "demo", "docs", "examples", "tests", "tools")

#: Copied unchanged from elsewhere; the rules of this house do not apply to its form.
FOREIGN = ("benchmarks/limit_probe.py",)


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def files() -> tuple[str, ...]:
    """Return all files of the project: tracked ones that exist, and new ones that are not
    ignored."""
    return tuple(sorted(name for name in set(_listed("--cached", "--others", "--exclude-standard"))
                        if (ROOT / name).is_file()))


@functools.cache
def tracked() -> tuple[str, ...]:
    """Return all files that git tracks."""
    return tuple(_listed())


def _listed(*options: str) -> list[str]:
    """Return the files that git lists.  Skips the calling test, or module, without git or a
    checkout."""
    # The tree is trusted even if it belongs to another user.
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", *options]
    if shutil.which(command[0]) is None:
        pytest.skip("the files of the project are those that git knows. Run as root: "
                    "apt-get install -y git", allow_module_level=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("the files of the project are those that git knows. Run in a clone of the "
                    f"repository: make test ({done.stderr.strip()})", allow_module_level=True)
    return [name for name in done.stdout.split("\0") if name]


def with_suffix(*suffixes: str) -> tuple[str, ...]:
    """Return the files of the project whose names end in one of ``suffixes``."""
    return tuple(name for name in files() if name.endswith(suffixes))


def python_files(*packages: str) -> tuple[str, ...]:
    """Return the project's ``.py`` files inside ``packages``, or all, without the foreign ones."""
    return tuple(name for name in with_suffix(".py") if name not in FOREIGN and
                 (not packages or name.split("/")[0] in packages))


@functools.cache
def text(name: str) -> str:
    """Return the text of a file."""
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def parsed(name: str) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(text(name), filename=name)


def definitions(name: str) -> Iterator[Definition]:
    """Return classes and functions of a Python file, nested ones included, in no particular order.
    Visits statements only: O(statements)."""
    waiting: list[ast.AST] = [parsed(name)]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                waiting.append(child)
                if isinstance(child, Definition):
                    yield child


def module_name(name: str) -> str:
    """Return ``multiraft.wire`` for ``multiraft/wire/__init__.py``."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def complain(rule: str, findings: list[str]) -> None:
    """Fail with one line per finding: ``file:line what is wrong; what to do instead``."""
    if findings:
        pytest.fail("\n  ".join([rule, *findings]), pytrace=False)
