"""One trial: every step of a client, in order, with the time and the failure of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from multiraft.errors import MultiRaftError
from tests.e2e.world import World
from tests.kafka_clients.catalog import Client, Open
from tests.kafka_clients.connector_steps import CONNECTOR_STEPS
from tests.kafka_clients.driver import ClientFailed
from tests.kafka_clients.records import Mismatch
from tests.kafka_clients.steps import NEEDED, STEPS, Trial

PASSED, FAILED, LACKING, NOT_RUN = "ok", "FAILED", "-", "not run"
FAILURES = (ClientFailed, Mismatch, MultiRaftError, AssertionError, LookupError)
#: Columns of the table.
ALL_STEPS = {**STEPS, **CONNECTOR_STEPS}

#: Tells the name of a step, its cell, the seconds that it took, and why it failed.
Report = Callable[[str, str, float, str], None]


def kafka_servers(world: World) -> str:
    """Return the addresses of all nodes for Kafka's clients."""
    return ",".join(node.kafka_address for node in world.dev.record.nodes)


def run_trial(client: Client, opened: Open, world: World, log: Path, seed: int,
              report: Report, left_out: frozenset[str] = frozenset()) -> dict[str, str]:
    """Run the steps of a client without those ``left_out``. Return a cell for each step."""
    driver = opened(kafka_servers(world), log)
    topic = f"{client.name}-{client.version}-{seed}".replace(" ", "-")
    trial = Trial(client, driver, world, topic, seed)
    cells = {}
    try:
        for name, step in ALL_STEPS.items():
            why, begun = "", time.monotonic()
            if name in left_out:
                cells[name] = NOT_RUN
                continue
            is_lacking = name in client.lacks if name in STEPS else not client.is_connector
            if is_lacking and name not in NEEDED:
                cells[name] = LACKING
                continue
            try:
                step(trial)
                cells[name] = LACKING if is_lacking else PASSED
            except FAILURES as error:
                cells[name], why = FAILED, f"{type(error).__name__}: {error}"
            report(name, cells[name], time.monotonic() - begun, why)
            if name == "create" and why:
                return dict.fromkeys(ALL_STEPS, NOT_RUN) | cells
    finally:
        driver.close()
        trial.native.close()
    return cells
