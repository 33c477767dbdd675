"""Names of threads where the system shows them.

Contract.  ``name_this_thread`` gives the calling thread a name of at most 15 bytes in ``/proc``,
``top -H`` and debuggers: which of a node's threads is busy, or stuck, is the first question about
a node that is slow.  Python's own names are seen by Python only.  A system that refuses is no
reason to stop.
"""

from __future__ import annotations

import threading


def name_this_thread(name: str) -> None:
    """From within the thread."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
            comm.write(name)
    except OSError:
        return  # no /proc, or one that is read-only
