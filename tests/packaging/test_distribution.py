"""The source distribution and the wheel: complete, without foreign files, and working."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import multiraft
from tests import needs
from tests.ports import free_base_port
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


def test_the_sdist_has_every_file_of_the_project(built):
    """But for those that only git and the CI read."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in tree.files() if name not in names
            and not name.startswith((".git", ".ci/"))] == []


def test_the_sdist_lists_its_commands_where_it_is_unpacked(built, tmp_path):
    needs.commands("make", "awk", "tar")
    # Python 3.11.2 has no extraction filters, and later ones warn where none is named.
    subprocess.run(["tar", "-xzf", next(built.glob("*.tar.gz")), "-C", tmp_path], check=True)
    (root,) = tmp_path.iterdir()
    done = subprocess.run(["make", "help"], cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "make demo " in done.stdout and "make test " in done.stdout


def test_the_package_says_what_it_is(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        about = email.message_from_bytes(archive.read(name))
        licence = archive.read(name.replace("METADATA", "licenses/LICENSE"))
    assert about["Name"] == "multiraft" and about["Version"] == multiraft.__version__
    assert about["Author"] == "the multiraft authors"
    assert about["License-Expression"] == "Apache-2.0"
    assert licence == (tree.ROOT / "LICENSE").read_bytes()
    assert "raft" in about["Keywords"]
    assert "Development Status :: 3 - Alpha" in about.get_all("Classifier")


def test_the_wheel_has_every_module_and_nothing_else(wheel):
    modules = {name for name in wheel if name.endswith(".py")}
    assert modules == set(tree.python_files(*tree.PACKAGES))
    assert [name for name in wheel if re.match(r"multiraft/_core\..*\.so$", name)]
    assert [name for name in wheel if re.match(r"multiraft/kafka/_codec\..*\.so$", name)]
    assert "multiraft/_core.pyi" in wheel and "multiraft/kafka/_codec.pyi" in wheel
    assert "multiraft/py.typed" in wheel


def test_the_wheel_works_where_the_sources_are_not(built, tmp_path):
    target = tmp_path / "site"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        archive.extractall(target)
    probe = ("import multiraft.core, multiraft, multiraft.kafka.requests; "
             "print(multiraft.__file__, multiraft.core.crc32c(b'123456789'))")
    done = subprocess.run([sys.executable, "-P", "-c", probe], cwd=tmp_path, capture_output=True,
                          text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(target),
                               "MULTIRAFT_CORE": "compiled"})
    assert done.returncode == 0, done.stderr
    where, checksum = done.stdout.split()
    assert where.startswith(str(target))
    assert int(checksum) == 0xE3069283, "the check value of CRC-32C"


@pytest.fixture
def installed(built, tmp_path):
    """Return a function that runs the `multiraft` of an environment which has the wheel, and the
    libraries of this environment, but no path to the tree; its cluster ends with the test."""
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet",
                    "--no-deps", "--no-index", "--disable-pip-version-check",
                    next(built.glob("*.whl"))], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    # A path from a .pth file is searched last, and .pth files there are not read: the installation
    # of the tree in place stays out.
    (site / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {"PATH": f"{place / 'bin'}:{os.defpath}", "HOME": str(tmp_path)}

    def run(*words: str, given: str = "") -> str:
        done = subprocess.run([place / "bin" / "multiraft", *words], input=given, cwd=elsewhere,
                              env=environment, capture_output=True, text=True, timeout=BUILD_S)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    yield run
    if (elsewhere / "dev-cluster").exists():
        run("dev", "down", "--wipe", "--dir", "dev-cluster")


def test_the_wheel_runs_a_cluster_in_an_environment_of_its_own(installed, tmp_path):
    about = installed("version")
    assert multiraft.__version__ in about and str(tmp_path / "venv") in about
    installed("dev", "up", "--groups", "4", "--base-port", str(free_base_port(3)))
    installed("topic", "create", "greetings")
    installed("produce", "greetings", given="hello\nworld\n")
    assert installed("consume", "greetings", "--until-end") == "hello\nworld\n"
    assert multiraft.__version__ in installed("cluster", "status")
    installed("dev", "down")
