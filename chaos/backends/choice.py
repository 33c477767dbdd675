"""Backends by name, each imported when it is used, so that its dependencies are needed only
then."""

from __future__ import annotations

import importlib
from pathlib import Path

from admin_cli import extras
from chaos.backends.backend import Backend, BackendError, ClusterSpec

#: name -> where it is.
BACKENDS = {"process": "chaos.backends.processes:ProcessBackend",
            "docker": "chaos.backends.containers:DockerBackend"}


def open_backend(name: str, directory: Path, spec: ClusterSpec) -> Backend:
    """Return a new backend by its name in ``BACKENDS``; its cluster is not up yet.  Raises
    ``BackendError`` (``EngineUnavailable`` among others) when this machine cannot run it, or
    ``directory`` has the nodes of another run."""
    module, _, attribute = BACKENDS[name].partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("docker", "testcontainers"):
            raise
        raise BackendError(f"the package {error.name} is not installed. This needs: "
                           f"{extras.install_line('chaos')}") from error
    return kind(directory, spec)
