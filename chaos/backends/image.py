"""Image for the containers of a run, built from this source tree.

Contract.  ``ensure`` returns the image's name and builds it only when the engine has no image of
these sources.  A digest of everything that runs inside identifies it: the packages of a node, the
launcher with its planted bugs, the pins, the Dockerfile.  The base image is a local one, else the
registry's, else one that is made once from Debian's packages (root, ``debootstrap``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from chaos.backends import host
from chaos.backends.backend import BackendError

REPOSITORY = "multiraft-chaos"
#: The base that build.sh makes without a registry, and the one that it pulls from one: the release
#: of Debian that has this Python, whose wheels it installs.
_PYTHON = "{}.{}".format(*sys.version_info)
_SUITE = {"3.11": "bookworm", "3.13": "trixie"}.get(_PYTHON)
LOCAL_BASE = f"multiraft-base:{_SUITE or f'python{_PYTHON}'}"
REGISTRY_BASE = f"debian:{_SUITE}-slim" if _SUITE else f"python:{_PYTHON}-slim"
#: A registry that answers sends 30 MB in this time; one that does not would keep us for minutes.
PULL_S = 60.0
BUILD_S = 900.0
#: Label of the Dockerfile's first stage; the final image does not have it.
STAGE_LABEL = "multiraft.stage"
#: Last line of build.sh when Debian's packages cannot be fetched.
NO_BASE_SAID = "no base: debootstrap failed"
#: Images of other sources that are kept; they share the base.
KEPT = 10
#: What runs in a container, below the root of the tree.
SOURCES = ("multiraft", "node", "placement", "admin_cli", "spark", "chaos/launcher.py",
           "chaos/shifted_clock.py", "chaos/planted", "setup.py", "pyproject.toml",
           "constraints.txt", "deploy/container")
_SUFFIXES = (".py", ".pyx", ".pxd", ".pxi", ".h", ".pyi", ".toml", ".txt", ".sh", "Dockerfile")


class ImageFailed(BackendError):
    """Raised when there is no image and none can be built; the sentence gives the reason."""


class NoBase(ImageFailed):
    """Raised when there is no base image and none can be fetched: no fault of these sources."""


def root() -> Path:
    """Return the root of the source tree."""
    return Path(__file__).resolve().parents[2]


def name() -> str:
    """Return the name of the image of these sources."""
    return f"{REPOSITORY}:{digest()[:16]}"


def digest() -> str:
    """Return the SHA-256 of everything that runs in a container."""
    total = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for path in _files():
        content = path.read_bytes()
        total.update(f"{path.relative_to(root())} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def _files() -> Iterator[Path]:
    for source in SOURCES:
        path = root() / source
        if path.is_file():
            yield path
        else:
            yield from sorted(file for file in path.rglob("*") if file.is_file()
                              and file.name.endswith(_SUFFIXES)
                              and file.name != "_source_digest.h")


def exists(image: str) -> bool:
    """True if the engine has the image."""
    return bool(host.run("docker", "image", "ls", "-q", image).strip())


def ensure() -> str:
    """Return the image's name, after building the image if it is missing and removing old ones.
    Waits while another run builds it. Raises as ``build``."""
    image = name()
    with (host.state_directory() / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once build it once
        if not exists(image):
            build(image)
            _forget_old()
    return image


def build(image: str) -> None:
    """Build the image of this source tree under the name ``image``.  Raises ``ImageFailed``;
    ``NoBase`` where these sources are not the cause."""
    script = root() / "deploy" / "container" / "build.sh"
    if not script.exists():
        raise ImageFailed("an image is built from the source tree, and this is an installation")
    try:
        host.run(str(script), "--tag", image, *_base(), timeout_s=BUILD_S,
                 environment={**os.environ, "PYTHON": sys.executable})
    except BackendError as error:
        last = [line for line in str(error).splitlines() if line.strip()][-1]
        failed = NoBase if last.endswith(NO_BASE_SAID) else ImageFailed
        raise failed(f"the image cannot be built: {last}") from error


def _base() -> list[str]:
    """Return options of build.sh that choose the base image: a local one, else one from a registry,
    else one that the build makes. Raises ``NoBase`` when none can be had."""
    for image in (LOCAL_BASE, REGISTRY_BASE):
        if exists(image):
            return ["--base", image]
    try:
        host.run("docker", "pull", "--quiet", REGISTRY_BASE, timeout_s=PULL_S)
    except BackendError as error:
        if not host.is_root():
            raise NoBase(f"no registry has {REGISTRY_BASE} ({error}), and making a base "
                         f"takes root") from error
        _require_debootstrap()
        return ["--debootstrap"]
    return ["--base", REGISTRY_BASE]


def _require_debootstrap() -> None:
    if shutil.which("debootstrap") is None:
        try:
            host.run("apt-get", "install", "-y", "--no-install-recommends", "debootstrap",
                     timeout_s=PULL_S)
        except BackendError as error:
            raise NoBase("no registry can be reached and debootstrap is not installed: "
                         "apt-get install debootstrap") from error


def _forget_old() -> None:
    """Remove the images of first stages, which no build needs any longer, and all but the ``KEPT``
    newest images. An image that a container uses stays."""
    host.run("docker", "image", "prune", "--force", "--filter", f"label={STAGE_LABEL}")
    rows = host.run("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}",
                    REPOSITORY).split()
    for image in rows[KEPT:]:
        try:
            host.run("docker", "image", "rm", image)
        except BackendError as error:
            if "in use" not in str(error) and "being used" not in str(error):
                raise
