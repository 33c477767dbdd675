"""A clock that follows a file: jumps, drift, and refused shifts."""

from __future__ import annotations

import pytest

from chaos.shifted_clock import (
    LOOK_MS,
    BadShift,
    ClockShift,
    ShiftedClock,
    read_shift,
    write_shift,
)

MS = 1_000_000


class Machine:
    """Clocks of the machine, controlled by the test."""

    def __init__(self):
        self.now_ns = 5_000 * MS
        self.wall_ns = 1_700_000_000_000 * MS

    def pass_ms(self, ms: int) -> None:
        self.now_ns += ms * MS
        self.wall_ns += ms * MS


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def path(tmp_path):
    write_shift(tmp_path / "clock", ClockShift())
    return tmp_path / "clock"


@pytest.fixture
def clock(machine, path):
    return ShiftedClock(path, lambda: machine.now_ns, lambda: machine.wall_ns)


def test_without_a_shift_it_is_the_true_clock(clock, machine):
    assert (clock.monotonic_ns(), clock.time_ns()) == (machine.now_ns, machine.wall_ns)
    machine.pass_ms(1_234)
    assert (clock.monotonic_ns(), clock.time_ns()) == (machine.now_ns, machine.wall_ns)


def test_jumps_add_up_and_reach_a_clock_that_is_looked_at(clock, machine, path):
    clock.monotonic_ns()
    write_shift(path, ClockShift(monotonic_ms=300, wall_ms=-9_000))
    assert clock.monotonic_ns() == machine.now_ns, "the file is not read at every look"
    machine.pass_ms(LOOK_MS)
    assert clock.monotonic_ns() == machine.now_ns + 300 * MS
    assert clock.time_ns() == machine.wall_ns - 9_000 * MS
    write_shift(path, ClockShift(monotonic_ms=1_000))
    machine.pass_ms(LOOK_MS)
    assert clock.monotonic_ns() == machine.now_ns + 1_000 * MS
    assert clock.time_ns() == machine.wall_ns


def test_drift_begins_when_it_is_read_and_what_it_gained_stays(clock, machine, path):
    clock.monotonic_ns()
    machine.pass_ms(LOOK_MS)
    write_shift(path, ClockShift(drift_ppm=100_000))
    assert clock.monotonic_ns() == machine.now_ns
    machine.pass_ms(1_000)
    assert clock.monotonic_ns() == machine.now_ns + 100 * MS
    write_shift(path, ClockShift(drift_ppm=-500_000))
    machine.pass_ms(LOOK_MS)
    gained_ns = clock.monotonic_ns() - machine.now_ns
    assert gained_ns == (1_000 + LOOK_MS) * MS // 10
    machine.pass_ms(100)
    assert clock.monotonic_ns() == machine.now_ns + gained_ns - 50 * MS


def test_a_slow_clock_does_not_go_back(clock, machine, path):
    write_shift(path, ClockShift(drift_ppm=-900_000))
    shown = []
    for _ in range(50):
        machine.pass_ms(3)
        shown.append(clock.monotonic_ns())
    assert shown == sorted(shown)


def test_a_jump_back_of_the_monotonic_clock_is_refused(clock, machine, path):
    write_shift(path, ClockShift(monotonic_ms=300))
    clock.monotonic_ns()
    write_shift(path, ClockShift(monotonic_ms=299))
    machine.pass_ms(LOOK_MS)
    with pytest.raises(BadShift, match="undone"):
        clock.monotonic_ns()


@pytest.mark.parametrize("text", ["", "[]", '{"monotonic_ms": 1.5}', '{"monotonic_ms": -1}',
                                  '{"drift_ppm": -1000000}', '{"sideways_ms": 1}', "null"])
def test_a_file_that_holds_no_shift_is_said(path, text):
    path.write_text(text)
    with pytest.raises(BadShift, match="clock"):
        read_shift(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        ShiftedClock(tmp_path / "nowhere").monotonic_ns()
