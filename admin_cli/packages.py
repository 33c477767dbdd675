"""A check that Python imports this installation's packages.

Theory.  The installed names are generic (`node`, `spark`, `chaos` ...).  A directory `node/` in
PYTHONPATH, or another distribution with the same name, would be imported instead and fail much
later with an unrelated message.  So the command checks first.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from admin_cli.failures import CommandFailed

#: Every top-level package of the distribution.
PACKAGES = ("multiraft", "placement", "node", "admin_cli", "spark", "chaos")


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
            raise CommandFailed(f"package {package!r} of this installation is missing from {root}.",
                                "Install again: pip install --force-reinstall multiraft")
        if root / package not in found.parents:
            raise CommandFailed(
                f"import {package!r} would load {found}, which is not part of this installation "
                f"({root}).",
                "Remove it, or its directory from PYTHONPATH, or use a virtual environment.")
