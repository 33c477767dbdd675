"""A valid history with one change: the checkers must report it.  Each change is one that a broken
cluster could cause and that a client, or a log, shows for certain.
"""

from __future__ import annotations

import random

import pytest

from benchmarks.bench_checkers import Generator
from chaos.checkers import check
from chaos.history import CORRUPT, FAIL, INVOKE, OK, Event

OPERATIONS, SEEDS = 3_000, range(4)


def replaced(events: list[Event], at: int, **data) -> None:
    events[at] = events[at]._replace(data={**events[at].data, **data})


def some(rng: random.Random, events: list[Event], name: str, kind: str = OK, **wanted) -> int:
    """Return the place of an event of that name; a result must have records."""
    places = [at for at, event in enumerate(events)
              if event.name == name and event.kind == kind
              and (name not in ("read", "poll") or kind == INVOKE or event.data["runs"])
              and all(event.data.get(field) == value for field, value in wanted.items())]
    return rng.choice(places[len(places) // 4:])


def invocation(events: list[Event], at: int) -> Event:
    operation = events[at].operation
    return next(event for event in events
                if event.operation == operation and event.kind == INVOKE)


def lose_the_end(rng, events):
    """Remove the last records from the final reads of a key."""
    finals = [at for at, event in enumerate(events)
              if event.kind == OK and event.name == "read" and event.process == 4000]
    last = {invocation(events, at).data["key"]: at for at in finals}
    at = rng.choice(sorted(last.values()))
    (base, values), = events[at].data["runs"]
    end = base + len(values) - 3
    for each in finals:
        if invocation(events, each).data["key"] == invocation(events, at).data["key"]:
            replaced(events, each, high_watermark=end)
    replaced(events, at, runs=[[base, values[:-3]]])
    return {"A3", "A17", "A13"}


def drop_from_the_middle(rng, events):
    at = some(rng, events, "read")
    (base, values), = events[at].data["runs"]
    if len(values) < 3:
        return drop_from_the_middle(rng, events)
    replaced(events, at, runs=[[base, values[:1]], [base + 2, values[2:]]])
    return {"A32"}


def read_twice(rng, events):
    at = some(rng, events, "read")
    (base, values), = events[at].data["runs"]
    replaced(events, at, runs=[[base, [values[0], *values]]])
    return {"A2", "A1", "A13"}


def corrupt_one(rng, events):
    at = some(rng, events, "read")
    (base, values), = events[at].data["runs"]
    replaced(events, at, runs=[[base, [*values[:-1], CORRUPT]]])
    return {"A30"}


def from_another_key(rng, events):
    at, other = some(rng, events, "read"), some(rng, events, "append", INVOKE)
    key = invocation(events, at).data["key"]
    while events[other].data["key"] == key or other > at:
        at, other = some(rng, events, "read"), some(rng, events, "append", INVOKE)
        key = invocation(events, at).data["key"]
    (base, values), = events[at].data["runs"]
    replaced(events, at, runs=[[base, [*values[:-1], events[other].data["values"][0]]]])
    return {"A1", "A29"}


def certain_end_goes_back(rng, events):
    at = some(rng, events, "offsets")
    end = events[at].data["high_watermark"]
    if end < 40:
        return certain_end_goes_back(rng, events)
    replaced(events, at, high_watermark=end - 40)
    return {"A15"}


def acknowledge_lower(rng, events):
    at = some(rng, events, "append")
    while (invocation(events, at).data["acks"] != "commit" or events[at].data["offset"] < 40):
        at = some(rng, events, "append")
    replaced(events, at, offset=events[at].data["offset"] - 40)
    return {"A14", "A14b", "A1"}


def fail_what_was_acknowledged(rng, events):
    at = some(rng, events, "append")
    while invocation(events, at).data["acks"] != "commit":
        at = some(rng, events, "append")
    events[at] = events[at]._replace(kind=FAIL, data={"error": "NotLeader", "text": ""})
    return {"A4"}


def poll_again(rng, events):
    at = some(rng, events, "poll")
    event, name = events[at], next(iter(events[at].data["runs"]))
    again = events[-1].operation
    moved = {name: event.data["runs"][name]}
    more = [Event(event.time_us, INVOKE, 10**9 + again, event.process, "poll", {"keys": [name]}),
            Event(event.time_us, OK, 10**9 + again, event.process, "poll", {"runs": moved})]
    events[at + 1:at + 1] = more
    return {"A10"}


CHANGES = (lose_the_end, drop_from_the_middle, read_twice, corrupt_one, from_another_key,
           certain_end_goes_back, acknowledge_lower, fail_what_was_acknowledged, poll_again)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_one_change_is_found(change):
    for seed in SEEDS:
        events = list(Generator(OPERATIONS, seed=seed).events())
        expected = change(random.Random(seed), events)
        found = {anomaly.id for anomaly in check(events).anomalies}
        assert found & expected, f"seed {seed}: {found} has none of {expected}"
