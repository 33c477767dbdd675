"""The source distribution and the wheel: complete, without foreign files, and working."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.tidy import tree

BUILD_S = 300


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Return a directory with one sdist, and the wheel that was built from nothing else."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out),
                           str(tree.ROOT)], capture_output=True, text=True, timeout=BUILD_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return out


@pytest.fixture(scope="module")
def wheel(built) -> list[str]:
    """Return the names in the wheel."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        return archive.namelist()


def test_the_sdist_has_the_sources_of_the_extension(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    for source in tree.with_suffix(".pyx", ".pxd", ".pxi", ".h"):
        assert source in names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_the_wheel_has_every_module_and_nothing_else(wheel):
    modules = {name for name in wheel if name.endswith(".py")}
    assert modules == set(tree.python_files(*tree.PACKAGES))
    assert [name for name in wheel if re.match(r"multiraft/_core\..*\.so$", name)]
    assert "multiraft/_core.pyi" in wheel
    assert "multiraft/py.typed" in wheel


def test_the_wheel_works_where_the_sources_are_not(built, tmp_path):
    target = tmp_path / "site"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        archive.extractall(target)
    probe = ("import multiraft.core, multiraft; "
             "print(multiraft.__file__, multiraft.core.crc32c(b'123456789'))")
    done = subprocess.run([sys.executable, "-P", "-c", probe], cwd=tmp_path, capture_output=True,
                          text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(target),
                               "MULTIRAFT_CORE": "compiled"})
    assert done.returncode == 0, done.stderr
    where, checksum = done.stdout.split()
    assert where.startswith(str(target))
    assert int(checksum) == 0xE3069283, "the check value of CRC-32C"
