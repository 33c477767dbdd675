"""Builder of the report page: words, tables and charts.

Contract.  ``build(folder)`` writes ``report.html`` and returns its path.  Raises ``NoHistory`` when
the folder holds no history.  A run that was not checked, or broke off, is shown as far as it has
results.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2

from chaos.checkers.verdict import Anomaly
from chaos.history import FAIL, INFO, OK, Event
from chaos.report import charts, series
from chaos.report.words import (
    OUTCOME_WORDS,
    count,
    duration,
    explained,
    heading,
    is_simulated,
    paragraph,
    phases,
    replay,
)
from chaos.run.findings import INVARIANT
from chaos.run.parameters import Folder

#: Operations whose lines are shown below their anomalies.
LINES_MAX = 400
#: Anomalies that are shown above the charts; further ones are one click away.
ANOMALIES_OPEN = 20
#: A line of the history is as long as the records that were read; the beginning and the end are
#: shown.
LINE_LETTERS_MAX = 600
ERRORS_MAX = 25
#: Lines of a trace that lead to a broken invariant.
TRACE_LINES_MAX = 60


class NoHistory(Exception):
    """Raised when a folder holds no history."""


def build(path: Path) -> Path:
    """Build the report of a run's folder and return its path.  Raises ``NoHistory``."""
    folder = Folder(path)
    if not folder.history.is_file():
        raise NoHistory(f"{path} holds no history of a run")
    page = environment().get_template("page.html").render(contents(folder))
    folder.report.write_text(page, encoding="utf-8")
    return folder.report


def environment() -> jinja2.Environment:
    """Return the environment of the templates beside this module; inserted values are escaped."""
    return jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent),
                              autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)


def contents(folder: Folder) -> dict[str, Any]:
    """Return everything that the page shows."""
    run = _json(folder.path / "run.json")
    verdict = _json(folder.verdict)
    found = series.read(folder.history)
    known = {name for name, _ in found.phases}
    found.phases += [phase for phase in run.get("phases", {}).items() if phase[0] not in known]
    outcome = verdict.get("outcome", "unchecked")
    return {
        "title": heading(run, folder.path.resolve().name), "outcome": outcome,
        "simulated": is_simulated(run),
        "paragraph": paragraph(run, verdict, found),
        "invalid": verdict.get("invalid", []),
        "notes": [explained(note) for note in verdict.get("notes", [])],
        "phases": phases(found),
        "anomalies": list(_anomalies(folder, verdict)),
        "anomalies_open": ANOMALIES_OPEN,
        "anomaly_total": sum(verdict.get("counts", {}).values()),
        "charts": _charts(found, _leadership(folder)) if len(found.columns.name) else {},
        "unasked": bool((found.columns.outcome == series.OUTCOMES.index(series.UNASKED)).any()),
        "operations": list(_operations(found)), "faults": list(_faults(found)),
        "errors": list(_errors(found)), "left_out": sorted(run.get("left_out", {}).items()),
        "facts": list(_facts(run)), "replay": replay(run),
        "checked": [(name.replace("_", " "), count(value))
                    for name, value in verdict.get("checked", {}).items()]}


def _charts(found: series.Series, leadership: list[list[int]]) -> dict[str, dict[str, str]]:
    """Return the charts by name, each for every screen by its name; charts without content are left
    out."""
    drawn = {screen.name: charts.draw(found, leadership, screen)
             for screen in (charts.WIDE, charts.NARROW)}
    return {name: {screen: of_screen[name] for screen, of_screen in drawn.items()}
            for name, svg in drawn[charts.WIDE.name].items() if svg}


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _leadership(folder: Folder) -> list[list[int]]:
    if not folder.leadership.is_file():
        return []
    lines = folder.leadership.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _anomalies(folder: Folder, verdict: dict[str, Any]) -> Iterator[dict[str, Any]]:
    anomalies = [Anomaly(**row) for row in verdict.get("anomalies", [])]
    wanted = {operation for anomaly in anomalies for operation in anomaly.operations}
    lines = series.operations_of(folder.history, wanted, LINES_MAX)
    for anomaly in anomalies:
        events = sorted(event for operation in anomaly.operations
                        for event in lines.get(operation, []))
        of_trace = anomaly.id == INVARIANT
        yield {"id": anomaly.id, "name": anomaly.name, "key": anomaly.key, "text": anomaly.text,
               "at": duration(anomaly.time_us / 1e6) if anomaly.time_us >= 0 else "end",
               "of": "trace" if of_trace else "history",
               "lines": _trace_tail(folder) if of_trace else [_line(event) for event in events]}


def _trace_tail(folder: Folder) -> list[str]:
    """Return the last lines of the trace before a simulated run broke."""
    with folder.trace.open(encoding="utf-8") as file:
        return [line.rstrip() for line in deque(file, TRACE_LINES_MAX)]


def _line(event: Event) -> str:
    data = json.dumps(event.data, separators=(",", ":"))
    if len(data) > LINE_LETTERS_MAX:
        half = LINE_LETTERS_MAX // 2
        data = f"{data[:half]} ... {data[-half:]}"
    return (f"{event.time_us / 1e6:11.6f} s  {event.kind:6}  operation {event.operation}  "
            f"process {event.process}  {event.name}  {data}")


def _operations(found: series.Series) -> Iterator[dict[str, str]]:
    for at, name in enumerate(found.names):
        rows = found.columns.where([at])
        counts = {outcome: int((rows.outcome == number).sum())
                  for number, outcome in enumerate(series.OUTCOMES)}
        median, p99, most = series.percentiles(charts.latencies_ms(rows))
        yield {"name": name, "ok": count(counts[OK]), "fail": count(counts[FAIL]),
               "info": count(counts[INFO]), "unasked": count(counts[series.UNASKED]),
               "median": duration(median / 1000),
               "p99": duration(p99 / 1000), "maximum": duration(most / 1000)}


def _faults(found: series.Series) -> Iterator[dict[str, str]]:
    canvas = charts.Canvas(found)
    for kind in canvas.kinds:
        mine = [fault for fault in found.faults if fault.kind == kind]
        yield {"kind": kind, "colour": canvas.colour(kind), "times": count(len(mine)),
               "seconds": f"{sum(fault.end_s - fault.begin_s for fault in mine):.1f} s"}


def _errors(found: series.Series) -> Iterator[dict[str, str]]:
    for (name, outcome, error), times in found.errors.most_common(ERRORS_MAX):
        yield {"name": name, "outcome": OUTCOME_WORDS[outcome], "error": error,
               "times": count(times)}


def _value(value: Any) -> str:
    """Return a parameter as text; some have parts."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "began", run.get("began", "?")
    for name, value in run.get("parameters", {}).items():
        if name != "output" and value not in ("", [], None):
            yield name, _value(value)
    for name, words in (("acknowledged_during_faults", "acknowledged in the phase of faults"),
                        ("leader_changes", "leader changes"), ("crashes", "crashes of nodes")):
        if name in run:
            yield words, count(run[name])
    if "digest" in run:
        yield "digest", run["digest"]
    for name, value in {**run.get("versions", {}), **run.get("backend_versions", {})}.items():
        yield name, str(value)
