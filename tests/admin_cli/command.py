"""The console script as a process with streams of its own, in front of a fake cluster.

`python -m tests.admin_cli.command ...` is `multiraft ...`; its topic ``t`` has as many records as
the environment's RECORDS says, and NAMED as a second name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from admin_cli import connection
from admin_cli.main import main
from admin_cli.packages import distribution_root
from tests.admin_cli.fakes import FakeCluster

#: Bytes of a record of ``t``, and of the line that shows it.
RECORD_BYTES, LINE_BYTES = 99, 100


def started(*arguments: str, records: int = 3, environ: dict[str, str] | None = None,
            command: tuple[str, ...] = (), **streams: Any) -> subprocess.Popen:
    """The process, by way of ``command`` (a shell that arranges its streams)."""
    streams.setdefault("stdin", subprocess.DEVNULL)
    streams.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen(
        # A suite that runs in the background ignores SIGINT, and its children would as well.
        ["env", "--default-signal=INT", *command, sys.executable, "-m", "tests.admin_cli.command",
         *arguments], **streams,
        env={**os.environ, "PYTHONPATH": str(distribution_root()), "RECORDS": str(records),
             "MULTIRAFT_SERVERS": "127.0.0.1:9101", **(environ or {})})


def shell(line: str, *arguments: str, **settings: Any) -> subprocess.CompletedProcess:
    """The process as the shell starts it: ``line`` ends with what is done to its streams, and has
    ``"$@"`` where the command stands."""
    process = started(*arguments, command=("bash", "-c", line, "bash"), stdout=subprocess.PIPE,
                      **settings)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def run() -> None:
    """Run the command as `multiraft` does."""
    cluster = FakeCluster()
    cluster.batch_records = 1_000
    cluster.topics["t"] = [[(None, b"%0*d" % (RECORD_BYTES, n))
                            for n in range(int(os.environ["RECORDS"]))]]
    cluster.topics[os.environ.get("NAMED", "t")] = cluster.topics["t"]
    connection.open_client = lambda addresses, tls=None: cluster.connect(addresses)
    main()


if __name__ == "__main__":
    run()
