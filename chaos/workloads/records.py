"""Conversion between values and records, as operations of the history name them.

Contract.  ``RecordSource`` gives each producer its next values; ``runs_of`` turns fetched batches
into runs of the history, in which a record that is not intact is ``CORRUPT``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from chaos import values
from chaos.history import CORRUPT
from chaos.workloads.workload_context import PartitionRef
from multiraft import core
from multiraft.client import FetchedBatch

#: Most records are small; some fill a page, so that batches of all sizes meet in a segment.
PADDING_SMALL, PADDING_LARGE, LARGE_SHARE = 120, 6_000, 0.05
RECORDS_MAX = 4


class RecordSource:
    """Source of one producer's records."""

    def __init__(self, run: int, producer: int, rng: random.Random):
        self._run = run
        self._producer = producer
        self._rng = rng
        self._number = 0

    def take(self, place: PartitionRef) -> tuple[list[int], list[bytes]]:
        """Return the values of a new append to a partition, and their records; no other append gets
        these values."""
        taken, records = [], []
        for _ in range(self._rng.randint(1, RECORDS_MAX)):
            value = values.value_of(self._producer, self._number)
            self._number += 1
            large = self._rng.random() < LARGE_SHARE
            padding = self._rng.randrange(PADDING_LARGE if large else PADDING_SMALL)
            taken.append(value)
            records.append(values.encode(self._run, place.key, value, padding))
        return taken, records


def value_at(run: int, key: str, record: core.Record) -> int:
    """Return the value of a record that was read at ``key``; ``CORRUPT`` or ``FOREIGN`` as
    ``values.decode``."""
    return CORRUPT if record.value is None else values.decode(run, key, record.value)


def runs_of(run: int, key: str, batches: Iterable[FetchedBatch], runs: list | None = None) -> list:
    """Return ``[[base offset, [value, ...]], ...]`` of the batches, appended to ``runs`` if that is
    given; records that follow without a gap are one run. Raises the errors of opening a batch."""
    runs = [] if runs is None else runs
    for batch in batches:
        found = [value_at(run, key, record) for record in batch.records()]
        if runs and runs[-1][0] + len(runs[-1][1]) == batch.base_offset:
            runs[-1][1].extend(found)
        else:
            runs.append([batch.base_offset, found])
    return runs


def fetched(place: PartitionRef, payload: memoryview, offset: int, high_watermark: int,
            ) -> list[FetchedBatch]:
    """Return a fetch's bytes as batches, with their checksums verified.  Raises ``CodecError``."""
    return [FetchedBatch(place.topic, place.partition, part, core.batch_header(part), offset,
                         high_watermark)
            for part in core.split_batches(payload)]


def next_offset(runs: list, otherwise: int) -> int:
    """Return the offset after the last run; ``otherwise`` if there is no run."""
    return runs[-1][0] + len(runs[-1][1]) if runs else otherwise
