"""The demo's screen shows a measure only where there is one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from screen import Screen


@pytest.fixture
def screen():
    return Screen(Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None))


def frame(screen: Screen) -> str:
    """Return the text of the panel as it is now."""
    with screen.console.capture() as captured:
        screen.console.print(screen)
    return captured.get()


def test_before_the_first_stage_there_is_no_measure_and_no_node(screen):
    shown = frame(screen)
    assert "starting" in shown and " 0 s" in shown
    assert "/" not in shown and "nodes" not in shown


def test_a_stage_with_a_measure_shows_it_and_the_nodes(screen):
    screen.stage("streaming", 1_000, "records")
    screen.node_state(1, "down")
    screen.advance(500, "3 on their way")
    shown = frame(screen)
    assert "500 / 1,000 records" in shown and "● 1 down" in shown and "3 on their way" in shown


def test_a_stage_without_one_follows_with_the_time(screen):
    screen.stage("streaming", 1_000, "records")
    screen.stage("drawing the plan")
    shown = frame(screen)
    assert "drawing the plan" in shown and "1,000" not in shown


def test_without_a_terminal_a_stage_without_measure_is_a_line():
    screen = Screen(Console(file=io.StringIO(), force_terminal=False, width=100))
    screen.stage("drawing the plan")
    assert "drawing the plan\n" in screen.console.file.getvalue()
