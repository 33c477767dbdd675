"""Copies of a node's configuration, log and data directory.

Contract.  ``copy_artifacts`` copies them out of a node's place while it may still run; files that
it renames or removes meanwhile are not in the copy.  The copies belong to the harness, whatever the
owner of the files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from chaos.backends import layout


def copy_artifacts(files: layout.Layout, node: int, target: Path) -> None:
    """Copy log, configuration and data directory (if there is one) of a node to ``target``, created
    if necessary; the copies belong to this user. Raises ``OSError``."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (files.log(node), files.config(node)):
        shutil.copyfile(path, target / path.name)
    if files.data(node).exists():  # a node that could not join has none
        shutil.copytree(files.data(node), target / layout.DATA, dirs_exist_ok=True,
                        copy_function=copy_if_present)
    _own(target)


def copy_if_present(source: str, target: str) -> str:
    """Copy a file as it is now and return ``target``, for ``shutil.copytree``. Skip a file that a
    running node has renamed or removed meanwhile."""
    try:
        return shutil.copy2(source, target)
    except FileNotFoundError:
        if os.path.lexists(source):
            raise
        return target


def _own(directory: Path) -> None:
    """Give a directory and everything below it, copied from a container, to this user."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, os.geteuid(), os.getegid())
