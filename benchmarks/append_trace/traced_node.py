"""Command of a node with probes, as ``multiraft dev`` starts nodes.

    python -P -m benchmarks.append_trace.traced_node DIRECTORY start --config node.toml

Contract.  The words behind the directory are those of ``python -m node``: same output, same exit
code.
When the process ends, its record is in ``DIRECTORY/<process id>.trace``.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path

from benchmarks.append_trace.recorder import Recorder, probe_node


def main() -> None:
    """Install the probes, then run the command."""
    directory, command = Path(sys.argv[1]), sys.argv[2:]
    recorder = Recorder()
    probe_node(recorder)
    atexit.register(recorder.write, directory / f"{os.getpid()}.trace")
    sys.argv = ["node", *command]
    runpy.run_module("node", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
