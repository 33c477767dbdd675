"""Damage map of a replica: the tables of ``damage_map`` are what its methods do.

``Model`` is the specification: sets of indexes and two flags, and the bytes that are cleared."""

from __future__ import annotations

import re

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from multiraft.storage.damage import damage_map
from multiraft.storage.damage.damage_map import (
    DamageMap,
    EntryState,
    MissingEntry,
    ReplicaState,
)
from multiraft.storage.damage.place import ORIGIN, Place
from multiraft.storage.damage.ranges import uncovered

INDEX, PLACE = 5, Place(4096, 64)

OF_ENTRIES = {
    "lose": lambda damage: damage.lose(INDEX, PLACE),
    "lose_term": lambda damage: damage.lose_term(INDEX),
    "suspect": lambda damage: damage.suspect(INDEX, PLACE),
    "repair": lambda damage: damage.repair(INDEX),
    "compact": lambda damage: damage.compact(INDEX + 1),
    "truncate": lambda damage: damage.truncate(INDEX),
}
OF_REPLICAS = {
    "quarantine": lambda damage: damage.quarantine("entry 5: found by a read"),
    "require_head_recovery": lambda damage: damage.require_head_recovery("its end is lost"),
    "quarantine_permanently": lambda damage: damage.quarantine_permanently("it fits no state"),
    "clear": lambda damage: damage.clear(8192, ((ORIGIN, PLACE),)),
    "remove": lambda damage: damage.remove(8192, PLACE),
}


def with_entry(state: EntryState) -> DamageMap:
    """Return a map whose entry came to ``state`` by transitions."""
    damage = DamageMap()
    if state is EntryState.UNREADABLE:
        damage.lose(INDEX, PLACE)
    elif state is EntryState.TERM_UNKNOWN:
        damage.lose_term(INDEX)
    elif state is EntryState.MAYBE_TRUNCATED:
        damage.suspect(INDEX, PLACE)
    assert damage.state_of(INDEX) is state
    return damage


def with_replica(state: ReplicaState) -> DamageMap:
    """Return the map of a replica that came to ``state`` by transitions."""
    damage = DamageMap()
    if state >= ReplicaState.DAMAGED:
        damage.quarantine("damage")
    if state in (ReplicaState.HEAD_UNKNOWN, ReplicaState.PERMANENT_HEAD_UNKNOWN):
        damage.require_head_recovery("damage")
    if state >= ReplicaState.PERMANENT:
        damage.quarantine_permanently("damage")
    assert damage.state is state
    return damage


def table(heading: str, states: type) -> dict[tuple[str, object], object]:
    """Return (transition, state) -> next state of the table with this heading, as the docstring has
    it; a row is continued by states in its column ``from``."""
    lines = re.split(heading, damage_map.__doc__)[1].split("\n\n")[0].splitlines()[1:]
    begin, middle, end = (re.search(heading, damage_map.__doc__).group(0).index(word)
                          for word in ("from", "to ", "cause"))
    found, name, to = {}, "", ""
    for line in (line.removeprefix("    ") for line in lines):
        if line[:begin].strip():
            name, to = line[:begin].strip(), line[middle:end].strip()
        for state in states if "every state" in line else \
                [states[word] for word in re.findall(r"[A-Z_]{3,}", line[begin:middle])]:
            found[name, state] = states[to]
    return found


ENTRY_TABLE = table(r"transition  from +to +cause", EntryState)
REPLICA_TABLE = table(r"transition {5,}from +to +cause", ReplicaState)


@pytest.mark.parametrize("state", EntryState)
@pytest.mark.parametrize("name", OF_ENTRIES)
def test_the_table_of_entries_is_what_the_methods_do(name, state):
    damage = with_entry(state)
    OF_ENTRIES[name](damage)
    assert damage.state_of(INDEX) is ENTRY_TABLE.get((name, state), state)
    damage._check()


@pytest.mark.parametrize("state", ReplicaState)
@pytest.mark.parametrize("name", OF_REPLICAS)
def test_the_table_of_replicas_is_what_the_methods_do(name, state):
    damage = with_replica(state)
    OF_REPLICAS[name](damage)
    assert damage.state is REPLICA_TABLE.get((name, state), state)
    damage._check()


def test_the_tables_name_every_transition_that_changes_a_state():
    assert {name for name, _ in ENTRY_TABLE} == set(OF_ENTRIES)
    assert {name for name, _ in REPLICA_TABLE} == set(OF_REPLICAS)


@pytest.mark.parametrize("state", ReplicaState)
def test_a_checkpoint_restores_every_state(state):
    before, after = with_replica(state), DamageMap()
    after.restore(before.why, before.needs_head_recovery, before.is_permanent, 7,
                  ((ORIGIN, PLACE),))
    assert (after.state, after.why) == (before.state, before.why)
    assert (after.cleared_position, after.cleared_ranges) == (7, ((ORIGIN, PLACE),))


def test_a_reason_that_a_replica_has_already_is_kept():
    damage = with_replica(ReplicaState.DAMAGED)
    damage.require_head_recovery("its end is lost")
    assert damage.why == "damage"


@pytest.mark.parametrize("index, kept", [(4, True), (5, False)])
def test_entries_from_the_first_removed_one_on_are_truncated(index, kept):
    damage = with_entry(EntryState.UNREADABLE)
    damage.lose(4, None)
    assert damage.truncate(5) == [5]
    assert (index in damage.missing) == kept


def test_entries_below_the_first_index_are_compacted():
    damage = with_entry(EntryState.UNREADABLE)
    damage.lose(4, None)
    assert damage.compact(5) == [4] and [*damage.missing] == [5]


def test_an_earlier_clear_record_changes_nothing():
    damage = with_replica(ReplicaState.HEAD_UNKNOWN)
    damage.remove(8192, PLACE)
    damage.require_head_recovery("it was removed during head recovery")
    damage.clear(8191, ())
    assert damage.state is ReplicaState.HEAD_UNKNOWN
    assert damage.cleared_ranges == ((ORIGIN, PLACE),)


def test_a_clear_record_that_is_not_complete_clears_ranges_alone():
    damage = with_replica(ReplicaState.HEAD_UNKNOWN)
    damage.clear(8192, ((ORIGIN, PLACE),), is_complete=False)
    assert damage.state is ReplicaState.HEAD_UNKNOWN
    assert damage.has_cleared([(ORIGIN, PLACE)])


def test_a_created_replica_has_nothing_in_damage_from_before():
    damage = DamageMap()
    assert not damage.needs_clear_record
    damage.create(4160, PLACE)
    assert damage.needs_clear_record and damage.has_cleared([(ORIGIN, PLACE)])
    assert not damage.clears_damage_before(PLACE), "an age is no damage"
    damage.clear(4224, ((ORIGIN, PLACE), (PLACE, Place(4096, 128))))
    assert not damage.needs_clear_record
    assert damage.clears_damage_before(Place(4096, 128))
    assert not damage.clears_damage_before(Place(4096, 127))


class Model(RuleBasedStateMachine):
    """The map beside sets of indexes."""

    indexes = st.integers(1, 12)
    places = st.one_of(st.none(), st.integers(1, 6).map(lambda at: Place(4096 * (at % 2), 64 * at)))

    @initialize()
    def begin(self) -> None:
        self.damage = DamageMap()
        self.missing: dict[int, Place | None] = {}
        self.term_unknown: set[int] = set()
        self.maybe_truncated: set[int] = set()
        self.quarantined = self.head_unknown = self.permanent = False
        self.cleared: set[Place] = set()
        self.position = 0  # of the last record

    @rule(index=indexes, place=places)
    def lose(self, index: int, place: Place | None) -> None:
        assert self.damage.lose(index, place) == (index not in self.missing)
        self.missing[index] = place

    @rule(index=indexes)
    def lose_term(self, index: int) -> None:
        self.damage.lose_term(index)
        self.missing[index] = None
        self.term_unknown.add(index)
        self.maybe_truncated.discard(index)

    @rule(index=indexes, place=places)
    def suspect(self, index: int, place: Place | None) -> None:
        self.damage.suspect(index, place)
        self.missing.setdefault(index, place)
        if index not in self.term_unknown:
            self.maybe_truncated.add(index)

    @rule(index=indexes)
    def repair(self, index: int) -> None:
        assert self.damage.repair(index) == (index in self.missing)
        self.forget({index} & self.missing.keys())

    @rule(first=st.integers(1, 13))
    def compact(self, first: int) -> None:
        self.forget(self.damage.compact(first), lambda index: index < first)

    @rule(first=st.integers(0, 13))
    def truncate(self, first: int) -> None:
        self.forget(self.damage.truncate(first), lambda index: index >= first)

    def forget(self, indexes, expected=None) -> None:
        if expected is not None:
            assert [*indexes] == [index for index in self.missing if expected(index)]
        for index in indexes:
            del self.missing[index]
            self.term_unknown.discard(index)
            self.maybe_truncated.discard(index)

    @rule(name=st.sampled_from(["quarantine", "require_head_recovery", "quarantine_permanently"]))
    def quarantine(self, name: str) -> None:
        OF_REPLICAS[name](self.damage)
        self.quarantined = True
        self.head_unknown |= name == "require_head_recovery"
        self.permanent |= name == "quarantine_permanently"

    @rule(step=st.integers(-2, 3), begin=st.integers(0, 7), length=st.integers(1, 4),
          is_complete=st.booleans())
    def clear(self, step: int, begin: int, length: int, is_complete: bool) -> None:
        named = ((Place(0, begin), Place(0, begin + length)),)
        self.damage.clear(self.position + step, named, is_complete)
        if step > 0:
            self.position += step
            self.cleared = {Place(0, at) for at in range(begin, begin + length)}
            if is_complete and not self.permanent:
                self.quarantined = self.head_unknown = False

    @rule(age=st.integers(1, 9), removes=st.booleans())
    def live_again(self, age: int, removes: bool) -> None:
        if removes:
            self.position += 1
            self.damage.remove(self.position, Place(0, age))
            self.missing, self.term_unknown, self.maybe_truncated = {}, set(), set()
            self.quarantined = self.head_unknown = self.permanent = False
        else:
            self.damage.create(self.position, Place(0, age))
        self.cleared = {Place(0, at) for at in range(age)}

    @invariant()
    def it_is_what_the_sets_say(self) -> None:
        damage = self.damage
        damage._check()
        assert [*damage.missing.items()] == [
            (index, MissingEntry(damage.state_of(index), place))
            for index, place in self.missing.items()]
        assert {*damage.terms_unknown()} == self.term_unknown
        for index in range(1, 13):
            assert damage.is_term_unknown(index) == (index in self.term_unknown)
            assert damage.is_maybe_truncated(index) == (index in self.maybe_truncated)
            assert damage.is_term_requested(index) == (
                index in self.missing.keys() - self.term_unknown - self.maybe_truncated)
        assert damage.unreadable() == [index for index in self.missing
                                       if index not in self.maybe_truncated]
        assert bool(damage.why) == self.quarantined
        assert damage.needs_head_recovery == self.head_unknown
        assert damage.is_permanent == self.permanent
        assert damage.is_waiting_for_leader == (
            self.head_unknown and not self.permanent and not self.missing)
        assert damage.is_exact == (not self.head_unknown and not self.permanent
                                   and not self.term_unknown and not self.maybe_truncated)
        for at in range(12):
            place, end = Place(0, at), Place(0, at + 1)
            assert damage.has_cleared([(place, end)]) == (place in self.cleared)
            assert uncovered(place, end, damage.cleared_ranges) == \
                [(place, end)] * (place not in self.cleared)


TestModel = Model.TestCase
