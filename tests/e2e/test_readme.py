"""The README's client example runs as printed, apart from the ports of this cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests import readme

RUN_S = 600.0


def test_the_client_example_appends_and_reads(world, tmp_path):
    example = readme.client_example()
    addresses = iter(world.addresses)
    example, replaced = re.subn(r"127\.0\.0\.1:\d+", lambda _: next(addresses), example)
    assert replaced == len(world.addresses), "the example names the three nodes of the demo"
    program = tmp_path / "example.py"
    program.write_text(example, encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                          timeout=RUN_S, cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert "first light" in done.stdout
