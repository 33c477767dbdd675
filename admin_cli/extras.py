"""Extras of the distribution: packages that few commands need, and how they are installed.

Contract.  A command imports such packages late.  ``require`` ends it with one sentence and the line
to run when they are missing, before it has begun.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
from pathlib import Path

from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.packages import distribution_root

DISTRIBUTION = "multiraft"


def is_installed(package: str) -> bool:
    """Return True if a top-level package can be imported; imports nothing."""
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def install_line(extra: str) -> str:
    """Return the command that installs an extra into the environment of this interpreter. It names
    the source tree where the distribution is not installed."""
    try:
        importlib.metadata.distribution(DISTRIBUTION)
        what = f"{DISTRIBUTION}[{extra}]"
    except importlib.metadata.PackageNotFoundError:
        what = f"{distribution_root()}[{extra}]"
    return f"{_pip()} install '{what}'"


def _pip() -> str:
    """Return ``pip`` if the shell finds that of this interpreter, else how the interpreter runs it.
    """
    found = shutil.which("pip")
    is_ours = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip" if is_ours else f"{sys.executable} -m pip"


def missing(extra: str, package: str, exit_code: int = ExitCode.FAILED) -> CommandFailed:
    """Return the failure for a package of an extra that is not installed."""
    return CommandFailed(f"the package {package} is not installed.",
                         f"This needs: {install_line(extra)}", exit_code)


def require(extra: str, *packages: str, exit_code: int = ExitCode.FAILED) -> None:
    """Return if every package of an extra is installed. Raises ``CommandFailed`` with ``exit_code``
    otherwise."""
    for package in packages:
        if not is_installed(package):
            raise missing(extra, package, exit_code)
