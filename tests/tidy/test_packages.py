"""Packages that are installed: the list in ``pyproject.toml`` beside the folders of the tree."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.tidy import tree

#: Folders of Python files that are not installed.
NOT_INSTALLED = {"tests", "benchmarks", "demo", "docs", "examples", "deploy", "tools"}


def test_every_package_of_the_tree_is_installed():
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {".".join(Path(name).parent.parts) for name in tree.python_files()
             if Path(name).name == "__init__.py" and Path(name).parts[0] not in NOT_INSTALLED}
    assert listed == found
