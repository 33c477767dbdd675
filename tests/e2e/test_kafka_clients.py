"""One of Kafka's clients against three nodes, another one each day; all of them and more are in
``make kafka-clients``.

``KAFKA_CLIENT=kcat`` chooses; the name is printed, and is part of each failure.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.kafka_clients.catalog import (
    AIOKAFKA,
    CONFLUENT,
    KAFKA_PYTHON,
    KCAT,
    Client,
    Open,
    install_kcat,
    python_program,
)
from tests.kafka_clients.trial import FAILED, run_trial
from tests.needs import SKIPPED

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}

#: Client, its program, and modules that it needs, which the extra dev of pyproject.toml brings.
ROTATION: tuple[tuple[Client, str, tuple[str, ...]], ...] = (
    (KCAT, "", ()),
    (CONFLUENT, "confluent", ("confluent_kafka",)),
    (KAFKA_PYTHON, "with_kafka_python", ("kafka", "snappy")),
    (AIOKAFKA, "with_aiokafka", ("aiokafka",)),
)
#: The kill with identities has the stricter check, and one kill is enough for a test.
LEFT_OUT = frozenset({"killed"})


@pytest.fixture(scope="module")
def of_today() -> tuple[Client, Open]:
    """Return the client of the day, or the one of ``KAFKA_CLIENT``.  Skips the test if it is not
    installed."""
    names = [client.name for client, _, _ in ROTATION]
    today = datetime.datetime.now(datetime.UTC).toordinal() % len(ROTATION)
    name = os.environ.get("KAFKA_CLIENT", names[today])
    client, script, modules = ROTATION[names.index(name)]
    if not script:
        if shutil.which("kcat") is None:
            pytest.skip(f"{SKIPPED}kcat. Run as root: apt-get install -y kcat")
        return client, install_kcat(Path())
    if any(importlib.util.find_spec(each) is None for each in modules):
        pytest.skip(f"{SKIPPED}{name}. Run: pip install -c constraints.txt -e '.[dev]'")
    return client, python_program(sys.executable, script)


# The client comes first: without it no nodes are started.
def test_the_client_of_the_day_loses_nothing(of_today, world, tmp_path):
    client, opened = of_today
    print(f"client of this run: {client.name}; KAFKA_CLIENT={client.name} chooses it again")
    failures = []

    def report(step: str, cell: str, seconds: float, why: str) -> None:
        print(f"{client.name}: {step}: {cell} ({seconds:.1f} s)")
        if cell == FAILED:
            failures.append(f"{client.name}: {step}: {why}")

    cells = run_trial(client, opened, world, tmp_path / "client.log", seed=1, report=report,
                      left_out=LEFT_OUT)
    assert not failures
    assert cells["killed idempotent"] == "ok", "the most important step was not run"
