"""Rows that a scan makes of fetched batches."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark': pip install 'multiraft[spark]'")

from multiraft import core  # noqa: E402
from multiraft.client._records import FetchedBatch  # noqa: E402
from multiraft.compression import codec_number, compress  # noqa: E402
from pyspark_multiraft.rows import Rows  # noqa: E402

CREATED_MS, APPENDED_MS = 1_700_000_000_000, 1_700_000_123_456


@pytest.mark.parametrize("codec_name", ["none", "gzip"])
def test_rows_of_a_batch_with_the_append_time_have_it(codec_name):
    rows = Rows(("offset", "timestamp", "value"))
    for base_offset, appended in ((0, False), (2, True)):
        builder = core.BatchBuilder(1 << 16)
        assert builder.extend(CREATED_MS, [b"a", b"b"]) == 2
        codec = codec_number(codec_name)
        block = compress(codec, builder.records_block()) if codec else None
        data = builder.build(codec=codec, block=block)
        if appended:
            core.stamp_append_time(data, APPENDED_MS)
        core.stamp_batch(data, base_offset, 1)
        batch = FetchedBatch("t", 0, memoryview(data), core.verify_batch(data), base_offset, 4)
        assert list(rows.add(batch, 4)) == []
    taken, = rows.rest()
    assert taken.column("offset").to_pylist() == [0, 1, 2, 3]
    assert [value.value // 1000 for value in taken.column("timestamp")] == [
        CREATED_MS, CREATED_MS, APPENDED_MS, APPENDED_MS]
