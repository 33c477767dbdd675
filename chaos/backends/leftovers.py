"""Copies of what a node leaves: its configuration, its log, its data directory.

Contract.  ``take`` copies them out of a node's place while it may still run; what it renames or
removes meanwhile is no part of the copy.  The copies are the harness's own, whoever owns the files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from chaos.backends import layout


def take(files: layout.Layout, node: int, place: Path) -> None:
    """All that a node has, to a directory of its own.  Raises ``OSError``."""
    place.mkdir(parents=True, exist_ok=True)
    for path in (files.log(node), files.config(node)):
        shutil.copyfile(path, place / path.name)
    if files.data(node).exists():  # a node that could not join has none
        shutil.copytree(files.data(node), place / layout.DATA, dirs_exist_ok=True,
                        copy_function=copy)
    _give_to_us(place)


def copy(source: str, target: str) -> str:
    """A file as it is now; one that a running node has renamed or removed meanwhile is none."""
    try:
        return shutil.copy2(source, target)
    except FileNotFoundError:
        if os.path.lexists(source):
            raise
        return target


def _give_to_us(directory: Path) -> None:
    """The copies of a container's files."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, os.geteuid(), os.getegid())
