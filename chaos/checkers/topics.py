"""Checkers of topics: created topics are found, incarnations are unique, metadata are consistent.

Theory.  A client sends the highest metadata index it has seen, and a node with an older index
waits: so one process never sees topics go back.  Two processes that ask different nodes may; until
everything is healed that is noted and not judged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from chaos.checkers.checker import Checker, ReadResult
from chaos.checkers.ledger import Key
from chaos.history import FINAL, INFO, INVOKE, OK, Event, partition_of


class _Topic:
    """Known facts about one topic name."""

    __slots__ = ("open", "deleted_us", "created", "created_us", "asked_us")

    def __init__(self) -> None:
        self.open = 0  # deletions that may still happen: without an answer, or ambiguous
        self.deleted_us = -1  # the last deletion was confirmed
        self.created = -1  # incarnation of the last confirmed creation
        self.created_us = -1  # time of that confirmation
        self.asked_us = -1  # time of its request

    def may_be_gone(self, asked_us: int) -> bool:
        """True if the topic may have been deleted since a question was asked at ``asked_us``: a
        deletion is open, or was confirmed after that time."""
        return self.open > 0 or self.deleted_us >= asked_us


class _Sight(NamedTuple):
    """The latest incarnation that a process knows."""

    incarnation: int = -1
    asked_us: int = -1
    time_us: int = -1


class TopicIncarnation(Checker):
    """A27: one process creates a topic, or learns of one, and is later answered that there is none,
    or an earlier incarnation of it, though no client has asked for its deletion meanwhile; after
    healing, the same for any two processes.  Or: two creations of one name are confirmed without a
    deletion between; one incarnation number is given to two topics; a deleted topic's records are
    read after healing; one incarnation at one epoch is placed in two ways.  O(1) per operation."""

    id, name = "A27", "topic-incarnation"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._topics: dict[str, _Topic] = {}
        self._seen: dict[tuple[int, str], _Sight] = {}
        self._names: dict[int, str] = {}  # incarnation -> name
        self._created: set[int] = set()
        self._placed: dict[tuple[str, int, int], tuple[list[int], int]] = {}
        self._groups: dict[str, list[int]] = {}  # topic's incarnation -> group of each partition
        self._final = False
        self._behind = 0

    def on_key(self, key: Key) -> None:
        groups = self._groups.get(key.topic, ())
        partition = partition_of(key.name)
        if partition < len(groups):
            key.group = groups[partition]

    def on_phase(self, event: Event) -> None:
        self._final = self._final or event.name == FINAL

    def on_topic(self, event: Event, asked: Event | None) -> None:
        topic = self._topics.setdefault((asked or event).data["topic"], _Topic())
        if event.kind == INVOKE:
            topic.open += event.name == "delete_topic"
        elif event.name == "delete_topic" and event.kind != INFO:
            topic.open -= 1
            if event.kind == OK:
                topic.deleted_us = event.time_us
        elif event.kind == OK and event.name == "create_topic":
            self._was_created(topic, event, asked)
        elif event.kind == OK and event.name == "describe":
            self._was_described(topic, event, asked)

    def _was_created(self, topic: _Topic, event: Event, asked: Event) -> None:
        incarnation = event.data["incarnation"]
        if incarnation in self._created:
            self._say(event, asked, f"incarnation {incarnation} was given out before")
        elif 0 <= topic.created_us < asked.time_us and not topic.may_be_gone(topic.asked_us):
            self._say(event, asked, f"created as {incarnation}, but it was created as "
                                    f"{topic.created} and not deleted")
        self._created.add(incarnation)
        topic.created, topic.created_us = incarnation, event.time_us
        topic.asked_us = asked.time_us
        self._sees(event, asked, incarnation)

    def _was_described(self, topic: _Topic, event: Event, asked: Event) -> None:
        incarnation = event.data["incarnation"]
        created = _Sight(topic.created, topic.asked_us, topic.created_us)
        sight = self._seen.get((asked.process, asked.data["topic"]), _Sight())
        known = max(sight, created) if self._final else sight
        if self._is_gone(topic, known, incarnation, asked):
            self._say(event, asked, f"incarnation {incarnation}, {known.incarnation} was known "
                                    f"before")
        elif self._is_gone(topic, created, incarnation, asked):
            self._behind += 1
        if incarnation >= 0:
            self._sees(event, asked, incarnation)
            self._is_placed(event, asked)

    @staticmethod
    def _is_gone(topic: _Topic, known: _Sight, incarnation: int, asked: Event) -> bool:
        """True if an answer takes back an incarnation that was known before the question. It does
        if it gives an earlier one, or none (-1) though no client may have deleted the topic."""
        if incarnation >= known.incarnation or known.time_us >= asked.time_us:
            return False
        return incarnation >= 0 or not topic.may_be_gone(known.asked_us)

    def _sees(self, event: Event, asked: Event, incarnation: int) -> None:
        name = asked.data["topic"]
        before = self._names.setdefault(incarnation, name)
        if before != name:
            self._say(event, asked, f"incarnation {incarnation} is that of {before}")
        place = (asked.process, name)
        if incarnation >= self._seen.get(place, _Sight()).incarnation:
            self._seen[place] = _Sight(incarnation, asked.time_us, event.time_us)

    def _is_placed(self, event: Event, asked: Event) -> None:
        groups = list(event.data.get("groups") or ())
        if not groups:
            return
        life = (asked.data["topic"], event.data["incarnation"], event.data.get("epoch", -1))
        before, operation = self._placed.setdefault(life, (groups, event.operation))
        if before != groups:
            self._say(event, asked, f"incarnation {life[1]} at epoch {life[2]} is in the groups "
                                    f"{groups}, and was in {before} (operation {operation})")
        topic = f"{life[0]}@{life[1]}"
        self._groups[topic] = groups
        for key in self.ledger.by_topic.get(topic, ()):
            self.on_key(key)

    def on_result(self, key: Key, result: ReadResult) -> None:
        if result.runs and key.deleted_us >= 0 and result.invoked_us > key.deleted_us:
            if self._final:
                self.found(f"offset {result.runs[0][0]} of a deleted topic is read", key,
                           (result.operation,), result.time_us)
            else:
                self._behind += 1

    def _say(self, event: Event, asked: Event, text: str) -> None:
        self.found(f"topic {asked.data['topic']}, {event.name}: {text}", None, (event.operation,),
                   event.time_us)

    def notes(self) -> list[str]:
        if not self._behind:
            return []
        return [f"metadata: {self._behind} answers were behind what another process knew"]


def life_of(data: dict[str, Any]) -> str:
    """Return ``topic@incarnation`` from the data of a deletion's invocation."""
    return f"{data['topic']}@{data.get('incarnation', -1)}"


CHECKERS = (TopicIncarnation,)
