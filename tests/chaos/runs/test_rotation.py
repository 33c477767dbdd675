"""The rotation: the drawn turns, and that everything is healed after any error."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter

import pytest

from chaos.backends.backend import CLIENTS, KINDS, BackendError, ClusterSpec
from chaos.nemeses import nemesis, rot, rotation
from chaos.nemeses.atlas import FileRegion
from chaos.nemeses.nemesis import Field, Loop, Nemesis, Strike
from chaos.nemeses.rot import BitRot
from chaos.nemeses.rotation import Rotation, Turn

TURNS = 2_000


class Recorder:
    """Backend that notes its calls, and refuses the given ones."""

    def __init__(self, kinds=KINDS, refused=()):
        self.kinds = frozenset(kinds)
        self.spec = ClusterSpec(nodes=3)
        self.asked: list[tuple] = []
        self._refused = refused

    def nodes(self) -> list[int]:
        return [1, 2, 3]

    def is_running(self, _node: int) -> bool:
        return False  # no node answers requests for leaders

    def __getattr__(self, name: str):
        def note(*arguments, timeout_s=0.0):
            self.asked.append((name, *arguments))
            if name in self._refused:
                raise BackendError(f"{name} is refused")
        return note

    def names(self) -> list[str]:
        return [row[0] for row in self.asked]


def run_turn(backend: Recorder, *names: str, seconds: float = 0.0) -> tuple[Rotation, list]:
    """Run one turn of these nemeses; return the events for a history."""
    said: list[tuple] = []
    rotated = Rotation(backend, 1, lambda *row: said.append(row))
    rotated.turn(Turn(names, seconds), threading.Event())
    return rotated, said


def drawn(seed: int = 1, enabled=None) -> list[Turn]:
    """Return many turns."""
    rng = random.Random(seed)
    return [rotation.draw(rng, enabled or rotation.names()) for _ in range(TURNS)]


def test_a_quarter_of_the_turns_is_calm():
    calm = sum(not turn.names for turn in drawn())
    assert 0.2 * TURNS < calm < 0.3 * TURNS


def test_every_nemesis_has_its_turns_and_no_kind_of_fault_comes_twice_in_one():
    kinds = {each.name: each.kind for each in rotation.CLASSES}
    seen = Counter(name for turn in drawn() for name in turn.names)
    assert seen.keys() == kinds.keys()
    for turn in drawn():
        assert len({kinds[name] for name in turn.names}) == len(turn.names)
        assert len(turn.names) <= rotation.TOGETHER_MAX


def test_turns_are_as_long_as_they_should_be():
    assert all(rotation.TURN_S[0] <= turn.seconds <= rotation.TURN_S[1] for turn in drawn())


def test_the_same_seed_draws_the_same_turns():
    assert drawn(7) == drawn(7) != drawn(8)


def test_what_restarts_begins_first_and_what_hangs_begins_last():
    order = {each.name: each.order for each in rotation.CLASSES}
    for turn in drawn():
        assert [order[name] for name in turn.names] == sorted(order[name] for name in turn.names)


def test_every_kind_of_fault_has_a_nemesis():
    assert {each.kind for each in rotation.CLASSES} == set(KINDS)


def test_only_what_the_backend_can_do_is_enabled():
    kept = Rotation(Recorder(kinds=("kill", "pause")), 1, lambda *_: None)
    assert kept.enabled == ["kill", "pause", "short-pauses"]
    chosen = Rotation(Recorder(), 1, lambda *_: None, enabled=("kill", "ring"))
    assert chosen.enabled == ["kill", "ring"]


@pytest.mark.parametrize(("name", "begin", "heal"), [
    ("pause", "pause", "resume"), ("halves", "cut", "cut"), ("ring", "cut", "cut"),
    ("one-way", "cut", "cut"), ("bridge", "cut", "cut"), ("alone", "cut", "cut"),
    ("no-clients", "cut", "cut"), ("loss", "lose", "lose"), ("delay", "delay", "delay"),
    ("resets", "reset", "reset"), ("slow-disk", "slow_disk", "slow_disk"),
    ("hung-disk", "freeze_disk", "thaw_disk"), ("full-disk", "fill_disk", "free_disk"),
    ("failed-disk", "fail_disk", "mend_disk"), ("clocks", "set_clock", "set_clock"),
    ("kill", "kill", "start"), ("stop", "stop", "start"), ("power-loss", "power_loss", "start")])
def test_a_turn_begins_heals_and_starts_what_is_down(name, begin, heal):
    backend = Recorder()
    _, said = run_turn(backend, name)
    asked = backend.names()
    assert asked[0] == begin
    assert heal in asked[1:]
    assert [row for row in backend.asked if row[0] == "start"][-3:] == [
        ("start", node, rotation.START_S) for node in (1, 2, 3)]
    assert [row[1] for row in said] == [True, False]


@pytest.mark.parametrize("refused", ["cut", "freeze_disk", "kill"])
def test_what_cannot_be_begun_is_noted_and_undone(refused):
    backend = Recorder(refused=(refused,))
    name = {"cut": "ring", "freeze_disk": "hung-disk", "kill": "kill"}[refused]
    rotated, said = run_turn(backend, name)
    assert [row[1] for row in said] == [True, False]
    assert rotated.refusals[0] == f"{name}: {refused} is refused"
    assert "start" in backend.names()


class FailedDisk:
    """A data directory on a disk that returns nothing."""

    def glob(self, _pattern: str):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_bits_do_not_flip_on_a_disk_that_fails_and_the_turn_goes_on():
    """Container run 7316: an earlier fault of the same turn had failed the disk, and the whole
    nemesis ended."""
    backend = Recorder()
    backend.data_directory = lambda _node: FailedDisk()
    rotated, said = run_turn(backend, BitRot.name, "pause")
    assert "cannot be read: [Errno 5]" in rotated.refusals[0]
    assert [row[:2] for row in said] == [("pause", True), ("pause", False)]


def test_a_disk_that_fails_between_the_choice_and_the_flip_is_a_refusal(monkeypatch, tmp_path):
    backend = Recorder()
    backend.data_directory = lambda _node: tmp_path
    for number in (1, 2):
        (tmp_path / f"checkpoint-{number:020}").write_bytes(b"a checkpoint")

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(rot, "flip_bit", fails)
    rotated, said = run_turn(backend, BitRot.name)
    assert "lets no bit flip: [Errno 5]" in rotated.refusals[0]
    assert [row[1] for row in said] == [True, False]


class Flipped(BitRot):
    """Bit rot without the file system: it needs one method of the backend."""

    def plan(self) -> Strike:
        return Strike([1], "bits flipped")

    def begin(self) -> None:
        self.backend.flip()


@pytest.mark.parametrize("each", [each for each in rotation.CLASSES if each is not BitRot]
                         + [Flipped], ids=lambda each: each.name)
def test_a_history_hears_of_a_fault_before_it_is_so_and_of_its_end_after(each):
    backend, said = Recorder(), []
    rotated = Rotation(backend, 1, lambda _kind, on, *_: said.append((on, len(backend.asked))))
    real, rotated._make = rotated._make, lambda name: (
        Flipped(Field(backend, random.Random()), rotated.atlas) if name == BitRot.name
        else real(name))
    rotated.turn(Turn((each.name,), 0.05), threading.Event())
    assert said == [(True, 0), (False, len(backend.asked))]
    assert len(backend.asked) >= len(backend.nodes()), "what is down is started before the end"


def test_a_rolling_restart_begins_before_the_first_node_stops_and_ends_after_the_last_start():
    backend = Recorder()
    rotated = Rotation(backend, 1, lambda _kind, on, *_: backend.asked.append((on,)))
    rotated.turn(Turn(("rolling-restart",), 0.0), threading.Event())
    assert backend.names() == [True, *["stop", "start"] * 3, *["start"] * 3, False]


def test_of_a_loop_that_does_not_come_to_its_end_no_end_is_told(monkeypatch):
    stepping, finish = threading.Event(), threading.Event()

    class Endless(Loop):
        name, kind = "endless", "pause"

        def plan(self) -> Strike:
            return Strike([1], "goes on")

        def begin(self) -> None:
            super().begin()
            assert stepping.wait(60)

        def step(self) -> None:
            stepping.set()
            finish.wait()

    monkeypatch.setattr(nemesis, "LOOP_END_S", 0.01)
    backend, said = Recorder(), []
    rotated = Rotation(backend, 1, lambda _kind, on, *_: said.append(on))
    loop = Endless(Field(backend, random.Random()))
    rotated._make = lambda _name: loop
    try:
        rotated.turn(Turn(("endless",), 0.0), threading.Event())
        assert said == [True]
        assert rotated.refusals[-1] == "endless: does not end, the history has no end of it"
    finally:
        finish.set()
        monkeypatch.undo()  # the thread may take longer to end than the short wait
        loop.heal()


def clients_named(name: str) -> set[bool]:
    """Return True if the clients are named, over many seeds, consistently with the links that are
    cut."""
    found = set()
    for seed in range(40):
        backend, said = Recorder(), []
        turns = Rotation(backend, seed, lambda *row, said=said: said.append(row))
        turns.turn(Turn((name,), 0.0), threading.Event())
        links = next(row[1] for row in backend.asked if row[0] in ("cut", "reset"))
        leads_on = all(CLIENTS in link for link in links)
        assert [CLIENTS in row[2] for row in said] == [leads_on, leads_on]
        found.add(leads_on)
    return found


def test_a_fault_that_keeps_clients_from_who_leads_on_names_the_clients():
    """A quorum does not help there, and the checker of availability has to know."""
    assert clients_named("no-clients") == {True}
    assert clients_named("resets") == {True, False}
    assert clients_named("alone") == clients_named("ring") == {False}


def test_a_loop_that_ends_early_is_told_and_everything_is_healed():
    """As a nemesis that switches partitions where there is one group."""
    class Stumbling(Loop):
        name, kind = "stumbling", "placement"

        def plan(self) -> Strike:
            return Strike([], "stumbles")

        def begin(self) -> None:
            super().begin()
            self._thread.join()

        def step(self) -> None:
            self.rng.choice([])

    backend, said = Recorder(), []
    rotated = Rotation(backend, 1, lambda _kind, on, *_: said.append(on))
    rotated._make = lambda _name: Stumbling(Field(backend, random.Random()))
    rotated.turn(Turn(("stumbling",), 0.0), threading.Event())
    assert "healing stumbling: the nemesis stumbling ended early: IndexError" in rotated.refusals[0]
    assert "heal_all" in backend.names()
    assert said == [True, False]


def test_what_cannot_be_planned_is_no_fault():
    class Planless(Nemesis):
        name, kind = "planless", "kill"

        def plan(self) -> Strike:
            raise BackendError("nobody is there")

        def begin(self) -> None:
            raise AssertionError("begun without a plan")

    backend = Recorder()
    said = []
    rotated = Rotation(backend, 1, lambda *row: said.append(row))
    rotated._make = lambda _name: Planless(Field(backend, random.Random()))
    rotated.turn(Turn(("planless",), 0.0), threading.Event())
    assert said == [] and rotated.refusals == ["planless: nobody is there"]


def test_when_healing_fails_everything_is_healed():
    backend = Recorder(refused=("thaw_disk",))
    run_turn(backend, "hung-disk")
    assert "heal_all" in backend.names()


def test_an_interrupted_turn_is_healed():
    class RunInterrupted(Nemesis):
        name, kind = "interrupted", "kill"

        def plan(self) -> Strike:
            return Strike([1], "interrupted")

        def begin(self) -> None:
            raise KeyboardInterrupt

    backend = Recorder()
    rotated = Rotation(backend, 1, lambda *_: None)
    real = rotated._make
    rotated._make = lambda name: (RunInterrupted(Field(backend, random.Random()))
                                  if name == "interrupted" else real(name))
    with pytest.raises(KeyboardInterrupt):
        rotated.turn(Turn(("pause", "interrupted"), 5.0), threading.Event())
    paused = [row[1] for row in backend.asked if row[0] == "pause"]
    assert paused and [row[1] for row in backend.asked if row[0] == "resume"] == paused


def test_a_run_that_is_stopped_heals_at_once_and_everything():
    backend = Recorder()
    stop = threading.Event()
    rotated = Rotation(backend, 3, lambda _kind, on, *_: on and stop.set(), turn_s=(60.0, 60.0))
    rotated.run(stop)
    assert backend.names()[-1] == "heal_all"


class Repairing(Recorder):
    """Node 2 was damaged, and reports for a while after its restart that its replicas do not
    count."""

    def __init__(self, answers: int):
        super().__init__()
        self._answers = answers

    def damaged_replicas(self, node: int) -> int:
        self.asked.append(("damaged_replicas", node))
        self._answers -= node == 2
        return 3 if node == 2 and self._answers >= 0 else 0


def hurt_after_damage(backend: Recorder, name: str = "pause", damaged: bool = True) -> Rotation:
    """Run a turn after one in which bits have flipped."""
    rotated = Rotation(backend, 1, lambda *_: None)
    if damaged:
        rotated.atlas.hit(2, FileRegion("hard state of group 1", 4096))
    rotated.turn(Turn((name,) if name else (), 0.0), threading.Event())
    return rotated


def test_nobody_else_is_hurt_while_a_replica_is_in_doubt_since_its_restart(monkeypatch):
    """The replica does not count before its leader has cleared it, so the other two are the
    quorum."""
    monkeypatch.setattr(rotation, "ASK_S", 0.0)
    backend = Repairing(answers=3)
    rotated = hurt_after_damage(backend)
    before = backend.names()[:backend.names().index("pause")]
    assert before.count("damaged_replicas") == 12, "somebody does not count thrice, then all do"
    assert rotated.refusals == []


def test_who_is_never_repaired_ends_no_rotation(monkeypatch):
    monkeypatch.setattr(rotation, "ASK_S", 0.0)
    monkeypatch.setattr(rotation, "REPAIR_S", 0.01)
    backend = Repairing(answers=1 << 30)
    rotated = hurt_after_damage(backend)
    assert "pause" in backend.names()
    assert rotated.refusals == ["waiting: node 2 has damaged replicas, 0 s after its repair began"]


@pytest.mark.parametrize(("name", "damaged"), [("pause", False), ("", True)])
def test_nobody_waits_for_repairs_where_nothing_is_damaged_or_nobody_is_going_to_be_hurt(
        name, damaged):
    backend = Repairing(answers=1 << 30)
    hurt_after_damage(backend, name, damaged)
    assert "damaged_replicas" not in backend.names()


def test_a_loop_goes_on_until_it_is_healed():
    backend = Recorder()
    run_turn(backend, "short-pauses", seconds=0.1)
    asked = backend.names()
    assert asked.count("pause") >= 1
    assert asked.count("resume") >= asked.count("pause")
