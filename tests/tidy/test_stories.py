"""Order of tests: steps of a story keep theirs, also when shuffled; others keep the requested
one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.tidy import tree

#: As a plugin that shuffles tests does it.
CONFTEST = """
import pytest
from tests import stories

@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    yield
    items.reverse()
    items[:] = stories.in_order(items)
"""
MODULE = """
import pytest
STORY = {story}
SET_UP = []
@pytest.fixture(scope="module", autouse=True)
def cluster():
    assert not SET_UP, "one cluster for all steps"
    SET_UP.append(1)
def test_b(): pass
@pytest.mark.parametrize("x", [2, 1])
def test_a(x): pass
def test_c(): pass
"""


@pytest.mark.parametrize(("story", "asked", "ran"), [
    (True, "", ["b", "a[2]", "a[1]", "c"]),
    (True, "::test_c", ["b", "a[2]", "a[1]", "c"]),
    (True, "::test_a", ["b", "a[2]", "a[1]"]),
    (True, "::test_b", ["b"]),
    (False, "", ["c", "a[1]", "a[2]", "b"]),
    (False, "::test_a", ["a[1]", "a[2]"])])
def test_whoever_asks_for_a_step_gets_those_before_it_in_their_order(story, asked, ran, tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    module = tmp_path / "test_steps.py"
    module.write_text(MODULE.format(story=story))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-c", os.devnull, f"--rootdir={tmp_path}",
         "-p", "no:cacheprovider", f"{module}{asked}"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT), "PYTEST_ADDOPTS": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition("::test_")[2].split()[0] for line in done.stdout.splitlines()
            if "PASSED" in line] == ran, done.stdout
