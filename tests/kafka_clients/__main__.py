"""The matrix of clients: ``make kafka-clients``, or ``make kafka-clients ARGS="kcat aiokafka"``."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from admin_cli.console.output import print_table
from tests.e2e import world as worlds
from tests.kafka_clients.catalog import CLIENTS, Client, NotInstalled
from tests.kafka_clients.trial import ALL_STEPS, FAILED, run_trial
from tests.needs import SKIPPED

INSTALLED = Path(__file__).resolve().parents[2] / "build" / "kafka-clients"
#: Cell of a client that could not be installed.
SKIPPED_CELL = "skipped"


def tell(text: str) -> None:
    """Show progress on standard error."""
    print(text, file=sys.stderr, flush=True)


class Matrix:
    """Results of all clients."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.failures: list[str] = []
        self.skipped: list[str] = []

    def add(self, client: Client, world: worlds.World, logs: Path, seed: int) -> None:
        """Install a client and run its steps."""
        label = f"{client.name} {client.version}"
        tell(f"{label}: installing")
        try:
            opened = client.install(INSTALLED)
        except NotInstalled as error:
            self.skipped.append(f"{SKIPPED}{label} - {error}")
            self.rows.append([label, *[SKIPPED_CELL] * len(ALL_STEPS)])
            tell(self.skipped[-1])
            return

        def report(step: str, cell: str, seconds: float, why: str) -> None:
            tell(f"{label}: {step}: {cell} ({seconds:.1f} s){' ' + why if why else ''}")
            if cell == FAILED:
                self.failures.append(f"{label}: {step}: {why}")

        log = logs / f"{label.replace(' ', '-')}.log"
        cells = run_trial(client, opened, world, log, seed, report)
        self.rows.append([label, *cells.values()])

    def show(self) -> None:
        """Print the table, then what was skipped and what failed."""
        print_table(["client", *ALL_STEPS], self.rows, wide=True)
        for line in (*self.skipped, *self.failures):
            print(line)


def names_of(client: Client) -> set[str]:
    """Return the names by which a client is chosen."""
    return {client.name, f"{client.name}-{client.version}"}


def main() -> int:
    """Run the clients that are named, or all. Return the exit status: 1 after any failure."""
    parser = argparse.ArgumentParser(prog="make kafka-clients")
    parser.add_argument("names", nargs="*",
                        help="clients, with or without version (kcat kafka-python-2.0.6); all "
                             "without any")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the records")
    given = parser.parse_args()
    unknown = set(given.names) - {name for client in CLIENTS for name in names_of(client)}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [each for each in CLIENTS
              if not given.names or names_of(each) & set(given.names)]
    # Whatever ends this program ends the nodes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    INSTALLED.mkdir(parents=True, exist_ok=True)
    matrix = Matrix()
    with tempfile.TemporaryDirectory(prefix="kafka-clients-") as directory:
        tell(f"starting three nodes; seed {given.seed}")
        with worlds.start(Path(directory) / "dev") as world:
            for client in chosen:
                matrix.add(client, world, Path(directory), given.seed)
    matrix.show()
    return 1 if matrix.failures else 0


if __name__ == "__main__":
    sys.exit(main())
