"""A session of our own, on machines with incomplete configurations."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark import session as spark_session
from spark.errors import NoSpark
from tests.tidy import tree

PROGRAM = """
from spark.session import started
with started("local[1]") as session:
    print("counted", session.range(3).count())
"""
#: A name of the machine that does not resolve, in a namespace of its own.
RENAMED = ("unshare", "--uts", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c",
           'hostname no-such-name.invalid && exec "$@"', "sh")


def test_a_machine_whose_own_name_nobody_knows_can_plan(monkeypatch):
    try:
        spark_session.check_machine()
    except NoSpark as error:
        pytest.skip(f"{error} {error.do}")
    tried = subprocess.run([*RENAMED, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"a machine cannot be given another name here: {tried.stderr.strip()}")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)  # which the session of the tests has set
    done = subprocess.run([*RENAMED, sys.executable, "-c", PROGRAM], cwd=tree.ROOT,
                          capture_output=True, text=True)
    assert "counted 3" in done.stdout, done.stderr
