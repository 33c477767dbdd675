"""The table of log events: every logger's call is in it, and the page is made from it."""

import ast
import logging
import os
import re

import pytest

from node.loop.event_reports import LOGGED_EVENTS, Logged
from node.observability.log_events import CRITICAL, EVENTS, SECTIONS, THEIRS, LogEvent
from node.observability.logging import LEFT_OUT
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "log-events.md"
#: Packages of what runs in a node's process.
PACKAGES = ("node/", "multiraft/", "placement/", "admin_cli/")
NAME = re.compile(r"[a-z]+(_[a-z0-9]+)+")
LOGGERS = ("log", "_log", "logger", "_logger")
METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log")
#: Calls whose event is a value: their events are listed by ``computed``.
COMPUTED = {"node/loop/event_reports.py", "node/observability/logging.py"}

#: Kinds of events of the core that concern a node, not a replica.
OF_A_NODE = ("lease_changed", "peer_disk_space", "peer_restarted", "trust_revoked")


def calls(source: str) -> list[ast.Call]:
    """Return the calls of a logger's methods."""
    def is_logger(value: ast.expr) -> bool:
        name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", None)
        return name in LOGGERS

    return [node for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and node.func.attr in METHODS and is_logger(node.func.value)]


def event_of(call: ast.Call) -> tuple[str, str, tuple[str, ...]] | None:
    """Return (name, level, fields) of a call; None for an event that is a value."""
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "log":
        return None
    name = ast.literal_eval(call.args[0])
    extra = next((word.value for word in call.keywords if word.arg == "extra"), None)
    keys = extra.keys if isinstance(extra, ast.Dict) else []
    assert extra is None or isinstance(extra, ast.Dict), f"the fields of {name} are no dict"
    return name, call.func.attr, tuple(ast.literal_eval(key) for key in keys)


def computed() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the events that the core's events become."""
    found = []
    for kind, value in LOGGED_EVENTS.items():
        place = () if kind in OF_A_NODE else ("group", "term")
        for logged in [value] if isinstance(value, Logged) else value.values():
            found.append((logged.name, logging.getLevelName(logged.level).lower(),
                          (*place, *logged.fields)))
    return found


def written() -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    """Return place -> events, of the source."""
    found: dict[str, list] = {"node/loop/event_reports.py LOGGED_EVENTS": computed()}
    for path in tree.with_suffix(".py"):
        if path.startswith(PACKAGES):
            for call in calls(tree.text(path)):
                event = event_of(call)
                if event is not None:
                    found.setdefault(path, []).append(event)
                else:
                    assert path in COMPUTED, f"{path} logs an event whose name is a value"
    return found


def test_every_logged_event_is_in_the_table_with_its_level_and_fields():
    found = written()
    assert sum(map(len, found.values())) > 60, "the calls are found"
    for path, events in found.items():
        for name, level, fields in events:
            assert name in EVENTS, f"{path} logs {name}, which log_events.py does not have"
            assert (level, fields) == (EVENTS[name].level, EVENTS[name].fields), f"{path}: {name}"


def test_every_event_of_the_table_is_logged_once_per_name():
    names = [event.name for section in SECTIONS for event in section.events]
    assert len(names) == len(EVENTS)
    logged = {name for events in written().values() for name, _, _ in events}
    #: Written as text by the thread that drops lines.
    assert set(names) == logged | {LEFT_OUT, "log_lines_dropped"}
    assert '"log_lines_dropped"' in tree.text("node/observability/logging.py")


def emitted() -> list[tuple[str, list[ast.expr]]]:
    """Return (kind, values) of each event that the core emits."""
    found = []
    for path in tree.with_suffix(".py"):
        if path.startswith("multiraft/raft/"):
            found += [(node.args[0].value, node.args[1:]) for node in ast.walk(tree.parsed(path))
                      if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                      and node.func.attr in ("emit", "_emit")
                      and isinstance(node.args[0], ast.Constant)]
    return found


@pytest.mark.parametrize("kind", LOGGED_EVENTS)
def test_events_of_the_core_have_as_many_values_as_their_fields_have_names(kind):
    """A difference would end the node when it logs the event."""
    logged = LOGGED_EVENTS[kind]
    calls_of_kind = [values for name, values in emitted() if name == kind]
    assert calls_of_kind
    for values in calls_of_kind:
        if isinstance(logged, Logged):
            assert len(values) == len(logged.fields)
            continue
        chosen = ([logged[values[1].value]] if isinstance(values[1], ast.Constant)
                  else logged.values())
        assert {len(values) - 1} == {len(each.fields) for each in chosen}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_names_are_noun_and_verb_and_texts_are_complete(event: LogEvent):
    assert NAME.fullmatch(event.name)
    assert all(re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", field) for field in event.fields)
    assert event.meaning.endswith((".", "`traceback`."))
    if event.level in ("warning", "error", CRITICAL) and event.action == "-":
        assert event.name in ACTIONLESS, f"{event.name} says nothing that an operator could do"


#: Warnings that need no operator: what they report ends by itself.
ACTIONLESS = {"group_recovery_forced", "head_recovery_started", "peer_leadership_distrusted",
              "snapshot_needed", "snapshot_download_failed", "load_window_lost",
              "node_returned", "quorum_regained"}


def test_a_call_with_an_unknown_name_or_field_is_found():
    [call] = calls('self._log.info("node_started", extra={"groups": 1})')
    assert event_of(call) == ("node_started", "info", ("groups",))
    assert calls("math.log(3)") == calls("self.catalog.info(1)") == []


# ---- the page ----------------------------------------------------------------------------------


def page() -> str:
    """Return docs/log-events.md as generated from the table."""
    parts = [PAGE.read_text().split("<!-- tables")[0],
             "<!-- tables: made from the source by tests/node/observability/test_log_events.py "
             "-->\n"]
    for section in SECTIONS:
        parts.append(f"\n## {section.title}\n\n| event | level | fields | meaning | what to do |\n"
                     "|---|---|---|---|---|\n")
        parts += [f"| `{event.name}` | {event.level} | "
                  f"{', '.join(f'`{field}`' for field in event.fields)} | {event.meaning} | "
                  f"{event.action} |\n" for event in section.events]
    return "".join(parts)


def test_the_page_says_what_the_table_says():
    expected = page()
    if os.environ.get("MULTIRAFT_REWRITE"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "MULTIRAFT_REWRITE=1 writes docs/log-events.md anew"
    assert THEIRS in expected
