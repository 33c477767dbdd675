"""Pure halves of ``node``: modules that decide and leave time and I/O to a driver.

Contract.  ``PURE_HALVES`` are the modules of ``node`` that a trio shell drives in a node and that
need no event loop, thread, socket or clock, whatever they import.
"""

from __future__ import annotations

import functools

import pytest

from tests.tidy import tree
from tests.tidy.imports import imports, our_modules, targets

PURE_HALVES = (
    "node.loop.block_reads",
    "node.loop.checkpoint_writer",
    "node.loop.ready_driver",
    "node.removal.record_trim",
    "node.removal.removal_steps",
    "node.removal.segment_cleaner",
    "node.loop.segment_files",
    "node.removal.segment_remover",
    "node.loop.write_gather",
    "node.peers.append_filler",
    "node.replicas.drain_leadership",
    "node.replicas.group_downloads",
    "node.replicas.group_snapshot",
    "node.replicas.group_snapshot_installer",
    "node.replicas.grown_groups",
    "node.replicas.lifecycle",
    "node.replicas.log_compaction",
    "node.replicas.orderly_stop",
    "node.replicas.record_copies",
    "node.replicas.record_copies_messages",
    "node.replicas.repair_messages",
    "node.replicas.repair_steps",
    "node.replicas.shed_transfers",
    "node.replicas.snapshot_installer",
    "node.replicas.snapshot_messages",
    "node.replicas.snapshot_receiver",
    "node.replicas.snapshot_source",
    "node.replicas.snapshot_state",
)
#: Pure halves whose constructors take a clock, with the node's as the default.
WITH_DEFAULT_CLOCK = (
    "node.clients.error_codes",
    "node.clients.fetch",
    "node.clients.key_checks",
    "node.clients.list_offsets",
    "node.clients.load_counts",
    "node.clients.memory_budget",
    "node.clients.metadata_wait",
    "node.clients.native_requests",
    "node.clients.partition_open",
    "node.clients.pending_appends",
    "node.clients.produce",
    "node.clients.producer_ids",
    "node.clients.read_index",
    "node.clients.read_view",
    "node.clients.record_keys",
    "node.clients.router",
    "node.clients.session",
    "node.clients.staged_batches",
    "node.loop.applier",
    "node.loop.steps",
    "node.loop.system_limits",
)
#: What the driver has in their place.
DRIVERS_ONLY = ("trio", "socket", "asyncio", "threading", "time", "node.clock")


@functools.cache
def file_of(module: str) -> str:
    """Return the Python file of one of our modules; empty for a compiled one."""
    return next((name for name in tree.python_files(*tree.PACKAGES)
                 if tree.module_name(name) == module), "")


def way_to_drivers(module: str, allowed: tuple[str, ...] = ()) -> list[str]:
    """Return the imports from ``module`` to something that only a driver has; empty = none. Modules
    in ``allowed`` are not entered.

    A package's ``__init__`` and ``multiraft.codec`` are left out: the latter chooses the twin of
    the compiled core, whose disk queue has a thread of its own."""
    before: dict[str, str] = {module: ""}
    waiting = [module]
    while waiting:
        here = waiting.pop()
        for found in imports(file_of(here)):
            if found.typing_only:
                continue
            for there in targets(found):
                if there in allowed:
                    continue
                if there in DRIVERS_ONLY:
                    way = [there, here]
                    while before[way[-1]]:
                        way.append(before[way[-1]])
                    return way[::-1]
                if (there in our_modules() and there not in before and file_of(there)
                        and not there.startswith("multiraft.codec.reference")):
                    before[there] = here
                    waiting.append(there)
    return []


@pytest.mark.parametrize("module", PURE_HALVES)
def test_a_pure_half_reaches_no_event_loop_thread_socket_or_clock(module):
    way = way_to_drivers(module)
    assert not way, f"{' imports '.join(way)}: pass it to the constructor instead"


@pytest.mark.parametrize("module", WITH_DEFAULT_CLOCK)
def test_a_half_with_a_default_clock_reaches_nothing_else_that_a_driver_has(module):
    way = way_to_drivers(module, ("node.clock",))
    assert not way, f"{' imports '.join(way)}: pass it to the constructor instead"


def test_a_shell_reaches_trio():
    assert way_to_drivers("node.replicas.snapshots") == ["node.replicas.snapshots", "trio"]
    assert way_to_drivers("node.assembly.replicas")[-1] in DRIVERS_ONLY
