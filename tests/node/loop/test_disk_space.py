"""The disk space guard of a node: what a refused client reads."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from node.loop.disk_space import Space

MIB = 1 << 20


@pytest.mark.parametrize(("free", "text"), [
    (0, "0.0 MiB are free, 96.0 MiB are needed before records are accepted again: delete at least "
        "96.0 MiB"),
    (12 * MIB - 1, "12.0 MiB are free, 96.0 MiB are needed before records are accepted again: "
                   "delete at least 84.1 MiB"),
    (2000 * MIB, "2,000.0 MiB are free, 96.0 MiB are needed before records are accepted again")])
def test_a_refusal_says_how_much_to_free_in_units_that_a_person_reads(tmp_path, free, text):
    files = SimpleNamespace(unallocated_bytes=lambda: 0)
    (tmp_path / "reserve").write_bytes(b"held")
    space = Space(tmp_path, 192 * MIB, logging.getLogger("test"), files, lambda _path: free)
    assert space.describe() == f"the disk of {tmp_path} is full: {text}"
