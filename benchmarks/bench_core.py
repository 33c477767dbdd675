"""Costs of the hot path: microseconds per call, per record or entry, and MB/s of each function.

    python -m benchmarks.bench_core [--reference] [--disk DIRECTORY]

Contract.  Prints a table; asserts nothing.  Each figure is the best of several runs, because other
work of the machine only adds time.  ``--reference`` measures the slow twin too; ``--disk`` the
gathered append and the disk queue's round trip, on a file that is removed afterwards.
"""

from __future__ import annotations

import argparse
import os
import select
import statistics
import tempfile
import threading
import time
from collections.abc import Callable

from multiraft import _core
from multiraft.codec import reference
from multiraft.types import Entry, EntryKind

NOW_MS = 1_700_000_000_000
RUNS = 5
RUN_S = 0.05
SYNCS = 1000


def best_s(function: Callable[[], object],
           now_s: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of one call by the clock ``now_s``, the best of RUNS."""
    started = now_s()
    function()
    calls = max(1, int(RUN_S / (now_s() - started + 1e-9)))
    best = float("inf")
    for _ in range(RUNS):
        started = now_s()
        for _ in range(calls):
            function()
        best = min(best, (now_s() - started) / calls)
    return best


def show(name: str, function: Callable[[], object], size: int, items: int = 1) -> None:
    """Print one line: microseconds per call and per item, MB/s when there are bytes."""
    seconds = best_s(function)
    rate = f"{size / seconds / 1e6:10.0f}" if size else " " * 10
    print(f"{name:38}{seconds * 1e6:12.2f}{seconds / items * 1e6:12.3f}{rate}")


def batch_of(twin, values: list[bytes]) -> bytearray:
    builder = twin.BatchBuilder(8 << 20)
    assert builder.extend(NOW_MS, values) == len(values)
    return builder.build()


def bench_hashes(twin) -> None:
    for size in (1 << 10, 16 << 10, 1 << 20):
        data = bytes(size)
        show(f"crc32c {size >> 10} KiB", lambda data=data: twin.crc32c(data), size)
    key = b"a key of 24 bytes, about"
    show("murmur2 24 B", lambda: twin.murmur2(key), 0)
    show("jump_hash 1024 buckets", lambda: twin.jump_hash(0xDEAD10CC, 1024), 0)


def bench_batches(twin, count: int, size: int) -> None:
    values = [bytes(size)] * count
    batch = batch_of(twin, values)
    total, label = len(batch), f"{count} x {size} B"
    header, block = twin.verify_batch(batch), memoryview(batch)[61:]
    builder = twin.BatchBuilder(8 << 20)

    def append():
        builder.clear()
        add = builder.append
        for value in values:
            add(NOW_MS, b"key", value)

    def extend():
        builder.clear()
        builder.extend(NOW_MS, values)

    show(f"BatchBuilder.append {label}", append, total, count)
    show(f"BatchBuilder.extend {label}", extend, total, count)
    show(f"BatchBuilder.build {label}", builder.build, total, count)
    show(f"check_batch {label}", lambda: twin.check_batch(batch), total, count)
    show(f"verify_batch {label}", lambda: twin.verify_batch(batch), total, count)
    show(f"decode_records {label}", lambda: twin.decode_records(header, block), total, count)
    show("stamp_batch", lambda: twin.stamp_batch(batch, 7, 7), 0)


def bench_entries(twin, count: int, batch_bytes: int) -> None:
    batch = batch_of(twin, [bytes(batch_bytes)])
    info = twin.batch_info(batch)
    entries = [Entry(EntryKind.DATA, 1, 1, 1, index, 9, index, batch, info)
               for index in range(count)]
    lane = b"".join(twin.frame_entries(entries, 1, 0)[0])
    label = f"{count} x {batch_bytes} B"
    show(f"frame_entries {label}", lambda: twin.frame_entries(entries, 1, 0), len(lane), count)
    show(f"parse_entries {label}", lambda: twin.parse_entries(lane), len(lane), count)
    show(f"scan_entries {label}", lambda: twin.scan_entries(lane, 0, 1), len(lane), count)
    show(f"check_entries {label}", lambda: twin.check_entries(lane, 0, 1), len(lane), count)
    show("find_entry 1 MiB of zeros", lambda: twin.find_entry(bytes(1 << 20), 0), 1 << 20)


def micros_each(step: Callable[[int], None]) -> str:
    """Return median and 99th percentile over SYNCS steps."""
    spent = []
    for number in range(SYNCS):
        started = time.perf_counter()
        step(number)
        spent.append((time.perf_counter() - started) * 1e6)
    spent.sort()
    return f"{statistics.median(spent):12.1f}{spent[SYNCS * 99 // 100]:12.1f}"


def bench_disk(directory: str) -> None:
    """Measure 1 KiB and fdatasync: bare, by append_gathered, and through each twin's queue."""
    print(f"{'1 KiB write and fdatasync':38}{'p50 us':>12}{'p99 us':>12}")
    block = os.urandom(1024)
    with tempfile.TemporaryFile(dir=directory) as file:
        fd = file.fileno()
        _core.append_gathered(fd, [bytes(1024 * SYNCS)], 0, True)

        def bare(number: int) -> None:
            os.pwrite(fd, block, 1024 * number)
            os.fdatasync(fd)

        print(f"{'os.pwrite and os.fdatasync':38}{micros_each(bare)}")
        gathered = micros_each(lambda n: _core.append_gathered(fd, [block], 1024 * n, True))
        print(f"{'append_gathered':38}{gathered}")
        for name, twin in (("compiled", _core), ("reference", reference)):
            print(f"{f'DiskQueue, {name}, to the eventfd':38}{queue_micros(twin, fd, block)}")


def queue_micros(twin, fd: int, block: bytes) -> str:
    """Submit, then wait for the eventfd in epoll as the round loop does, then collect."""
    wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
    queue = twin.DiskQueue(wake_fd)
    worker = threading.Thread(target=queue.run)
    worker.start()
    with select.epoll() as epoll:
        epoll.register(wake_fd, select.EPOLLIN)

        def step(number: int) -> None:
            queue.submit(fd, [block], 1024 * number, True, number)
            epoll.poll()
            os.eventfd_read(wake_fd)
            [(token, error, _, _)] = queue.completions()
            assert (token, error) == (number, 0)

        result = micros_each(step)
    queue.close()
    worker.join()
    os.close(wake_fd)
    return result


def bench(name: str, twin, scale: int) -> None:
    print(f"\n{name:38}{'us/call':>12}{'us/item':>12}{'MB/s':>10}")
    bench_hashes(twin)
    bench_batches(twin, 1000 // scale, 1024)
    bench_batches(twin, 5000 // scale, 100)
    bench_entries(twin, 200 // scale, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", action="store_true", help="measure the slow twin too")
    parser.add_argument("--disk", metavar="DIRECTORY", help="measure writes and syncs there")
    arguments = parser.parse_args()
    bench("compiled", _core, 1)
    if arguments.reference:
        bench("reference", reference, 50)
    if arguments.disk:
        print()
        bench_disk(arguments.disk)


if __name__ == "__main__":
    main()
