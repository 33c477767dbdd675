"""Copies of a node's configuration, log and data directory.

Contract.  ``take`` copies them out of a node's place while it may still run; files that it renames
or removes meanwhile are not in the copy.  The copies belong to the harness, whatever the owner of
the files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from chaos.backends import layout


def take(files: layout.Layout, node: int, place: Path) -> None:
    """Copy all files of a node to a directory of its own.  Raises ``OSError``."""
    place.mkdir(parents=True, exist_ok=True)
    for path in (files.log(node), files.config(node)):
        shutil.copyfile(path, place / path.name)
    if files.data(node).exists():  # a node that could not join has none
        shutil.copytree(files.data(node), place / layout.DATA, dirs_exist_ok=True,
                        copy_function=copy)
    _give_to_us(place)


def copy(source: str, target: str) -> str:
    """Copy a file as it is now; a file that a running node has renamed or removed meanwhile is
    skipped."""
    try:
        return shutil.copy2(source, target)
    except FileNotFoundError:
        if os.path.lexists(source):
            raise
        return target


def _give_to_us(directory: Path) -> None:
    """Give the copies of a container's files to this user."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, os.geteuid(), os.getegid())
