"""A check that Python imports this installation's packages.

Theory.  The installed names are generic (`node`, `spark`, `chaos` ...).  A directory `node/` in
PYTHONPATH, or another distribution with the same name, would be imported instead and fail much
later with an unrelated message.  So the command checks first.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from admin_cli.failures import CommandFailed

#: Every top-level package of the distribution.
PACKAGES = ("multiraft", "placement", "node", "admin_cli", "spark", "pyspark_multiraft", "chaos")


def distribution_root() -> Path:
    """Return the directory that holds the packages: `site-packages`, or a source tree."""
    return Path(__file__).resolve().parent.parent


def locate(package: str) -> Path | None:
    """Return the file or directory that ``import package`` would load, without importing it; None =
    there is none."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    return Path(next(iter(spec.submodule_search_locations or ["?"]))).resolve()


def check_packages(root: Path | None = None, packages: tuple[str, ...] = PACKAGES) -> None:
    """Return if each package would be imported from ``root``, by default this installation. Raises
    ``CommandFailed``, which names the first foreign or missing one and its place."""
    root = distribution_root() if root is None else root
    for package in packages:
        found = locate(package)
        if found is None:
            raise CommandFailed(
                f"package {package!r} of this installation is missing from {root}.",
                "Install again, in the source tree: pip install --force-reinstall .")
        if root / package not in found.parents:
            raise CommandFailed(
                f"import {package!r} would load {found}, which is not part of this installation "
                f"({root}).",
                _remedy(found, sys.path, os.environ.get("PYTHONPATH", "")))


def _remedy(found: Path, path: Sequence[str], python_path: str) -> str:
    """Return the way in which the foreign file and this command can both stay.

    ``path`` is the search path, on which the file's directory is; ``python_path`` the variable that
    is part of it."""
    places = [Path(entry).resolve() for entry in path]
    place = next((each for each in places if each in found.parents), found.parent)
    if place in {Path(entry).resolve() for entry in python_path.split(os.pathsep) if entry}:
        return (f"Both can stay: {place} is in PYTHONPATH; run this command without it: "
                f"env -u PYTHONPATH multiraft ...")
    if place == Path.cwd():
        return "Both can stay: run this command in another directory."
    return (f"Another distribution has installed it in {place}: install multiraft in a virtual "
            f"environment of its own.")
