"""``multiraft chaos check DIR``: the verdict on a run's folder, as a paragraph and as a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from chaos.checkers.verdict import Verdict
from chaos.history import BadHistory
from chaos.replicas import BadDump
from chaos.run.evaluation import verdict_on, write_verdict
from chaos.run.findings import BadFindings
from chaos.run.parameters import Folder

PARAMETERS = "run.json"

EXIT_PASSED, EXIT_FAILED, EXIT_NO_RUN, EXIT_INVALID = 0, 1, 2, 3
_EXITS = {"passed": EXIT_PASSED, "failed": EXIT_FAILED, "invalid": EXIT_INVALID}
#: Anomalies that are shown; all that are listed are in the file.
SHOWN_MAX = 10


class NoRun(Exception):
    """Raised for a folder that holds no run."""


def check_folder(path: Path) -> Verdict:
    """Return the verdict on a run's folder and write it to the folder's ``verdict.json``.  An
    unchanged folder gives the verdict that the run itself came to.

    Raises ``NoRun`` when there is no history or ``run.json`` cannot be parsed; ``BadHistory``,
    ``BadDump`` and ``BadFindings`` for a damaged file of that kind.
    """
    folder = Folder(path)
    if not folder.history.is_file():
        raise NoRun(f"{path} has no {folder.history.name}")
    folder.facts = _parameters(path / PARAMETERS)
    verdict = verdict_on(folder)
    write_verdict(folder, verdict)
    return verdict


def _parameters(path: Path) -> dict[str, Any]:
    """Return the parameters in ``run.json``; empty when the file is missing. Raises ``NoRun`` for a
    file that is no JSON object."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise NoRun(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise NoRun(f"{path} is no JSON object")
    return found


def paragraph(verdict: Verdict) -> str:
    """Return the verdict as a paragraph of text."""
    checked = verdict.checked
    words = [f"{verdict.outcome.upper()}: {checked.get('operations', 0):,} operations on "
             f"{checked.get('keys', 0)} keys, {checked.get('acknowledged', 0):,} appends "
             f"acknowledged ({checked.get('acknowledged_under_faults', 0):,} under "
             f"{checked.get('faults', 0)} faults), {checked.get('records_read', 0):,} records "
             f"read."]
    if "log_entries" in checked:
        words.append(f"{checked['log_entries']:,} log entries compared; of the appends with an "
                     f"unknown outcome {checked['unknown_happened']} happened and "
                     f"{checked['unknown_never']} did not.")
    else:
        words.append("No logs of replicas were compared.")
    if verdict.counts:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(verdict.counts.items()))
        words.append(f"Anomalies: {kinds}.")
    else:
        words.append("No anomaly.")
    if verdict.invalid:
        words.append(f"It proves nothing, for {'; '.join(verdict.invalid)}.")
    return " ".join(words)


@click.command("check")
@click.argument("folder", metavar="DIR",
                type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
def check_command(folder: Path, as_json: bool) -> None:
    """Check the run in DIR: its history, its replicas' logs, the role changes that nodes logged,
    and the run's own findings. Writes DIR/verdict.json.

    Exit codes: 0 passed, 1 anomalies, 2 DIR holds no run, 3 invalid: the run proves nothing.
    """
    try:
        verdict = check_folder(folder)
    except (NoRun, BadHistory, BadDump, BadFindings) as error:
        click.echo(f"multiraft chaos: {error}", err=True)
        sys.exit(EXIT_NO_RUN)
    if as_json:
        click.echo(json.dumps(verdict.to_json()))
    else:
        click.echo(paragraph(verdict))
        for anomaly in verdict.anomalies[:SHOWN_MAX]:
            where = f" {anomaly.key}" if anomaly.key else ""
            click.echo(f"  {anomaly.id} {anomaly.name}{where}: {anomaly.text}")
        for note in verdict.notes:
            click.echo(f"  note: {note}")
    sys.exit(_EXITS[verdict.outcome])
