"""Faults that the simulator and runs against real nodes have in common."""

from __future__ import annotations

from pathlib import Path

from chaos.faults import SHARED
from chaos.nemeses.rotation import CLASSES
from chaos.simulator.faults.nemesis import FAULTS

PAGE = Path(__file__).parents[2] / "docs/chaos.md"


def test_each_shared_fault_is_caused_by_both():
    assert {fault.kind for fault in SHARED} <= {*FAULTS}
    assert {fault.nemesis for fault in SHARED} <= {each.name for each in CLASSES}
    assert len({fault.kind for fault in SHARED}) == len(SHARED)


def test_a_fault_with_one_name_in_both_is_shared():
    both = {*FAULTS} & {each.name for each in CLASSES}
    assert both == {fault.kind for fault in SHARED if fault.kind == fault.nemesis}


def test_the_page_lists_the_shared_faults():
    rows = [f"| `{fault.kind}` | `{fault.nemesis}` | {fault.effect} | {fault.breaks} |"
            for fault in SHARED]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    begin = page.index(rows[0])
    assert page[begin:begin + len(rows)] == rows
    assert not page[begin + len(rows)]
