"""Are the packages that Python would import really ours?

Theory.  The installed names are generic (`node`, `spark`, `chaos` ...).  A directory `node/` in
PYTHONPATH, or another distribution that installs the same name, would be imported instead of ours
and fail much later with a message about something else.  So the command looks first.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from admin_cli.failures import CommandFailed

#: Every top-level package of the distribution.
PACKAGES = ("multiraft", "placement", "node", "admin_cli", "spark", "chaos")


def distribution_root() -> Path:
    """The directory that holds our packages: `site-packages`, or a source tree."""
    return Path(__file__).resolve().parent.parent


def locate(package: str) -> Path | None:
    """Where ``import package`` would look, without importing it; None = nowhere."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    return Path(next(iter(spec.submodule_search_locations or ["?"]))).resolve()


def check_packages(root: Path | None = None, packages: tuple[str, ...] = PACKAGES) -> None:
    """Raises ``CommandFailed`` naming each intruder (or missing package) and its place."""
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
