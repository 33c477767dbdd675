"""Gathered appends and the disk worker's queue, on real files and a real eventfd."""

import errno
import os
import platform
import select
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time

import pytest

from multiraft import _core
from multiraft.codec import reference
from multiraft.errors import QueueFull

DEADLINE_S = 20


@pytest.fixture
def file(tmp_path):
    fd = os.open(tmp_path / "lane", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


# ---- append_gathered ---------------------------------------------------------------------------

@pytest.mark.parametrize("sync", [False, True])
def test_buffers_are_written_in_order_at_the_position(twin, file, sync):
    buffers = [b"one", b"", bytearray(b"two"), memoryview(b"-three-")[1:-1]]
    assert twin.append_gathered(file, buffers, 5, sync) == 11
    assert content(file) == bytes(5) + b"onetwothree"
    assert os.lseek(file, 0, os.SEEK_CUR) == 0


def test_nothing_to_write_is_fine(twin, file):
    assert twin.append_gathered(file, [], 0, True) == 0
    assert twin.append_gathered(file, (b"", b""), 0, False) == 0
    assert content(file) == b""


def test_more_buffers_than_one_call_takes_are_written(twin, file):
    buffers = [number.to_bytes(4, "big") for number in range(2500)]
    assert twin.append_gathered(file, buffers, 0, False) == 10_000
    assert content(file) == b"".join(buffers)


#: A kernel that is interrupted, and writes at most 7 bytes when it is not.
SHORT_WRITES = r"""
#include <sys/uio.h>
static ssize_t short_pwritev(int fd, const struct iovec *iov, int count, off_t position);
#define pwritev short_pwritev
#include "_disk.h"
#undef pwritev
#include <stdio.h>
#include <string.h>

static char file[64];
static int calls;

static ssize_t short_pwritev(int fd, const struct iovec *iov, int count, off_t position) {
    ssize_t done = 0;
    if (calls++ % 3 == 1) {
        errno = EINTR;
        return -1;
    }
    for (int at = 0; at < count; at++) {
        for (size_t byte = 0; byte < iov[at].iov_len && done < 7; byte++) {
            file[position + done++] = ((char *)iov[at].iov_base)[byte];
        }
    }
    return done;
}

int main(void) {
    char one[] = "one", two[] = "a longer second part", three[] = "end";
    struct iovec iov[] = {{one, 3}, {two, 20}, {three, 3}};
    size_t written;
    int error = mr_append(-1, iov, 3, 2, 0, &written);
    printf("%d %zu %s", error, written, file + 2);
    return 0;
}
"""


def test_short_and_interrupted_writes_are_continued_by_the_compiled_twin(tmp_path):
    source, program = tmp_path / "short_writes.c", tmp_path / "short_writes"
    source.write_text(SHORT_WRITES)
    compiler = sysconfig.get_config_var("CC").split()[0]
    headers = os.path.dirname(_core.__file__)
    subprocess.run([compiler, "-std=gnu11", "-I", headers, "-o", program, source, "-pthread"],
                   check=True, timeout=60)
    output = subprocess.run([program], check=True, timeout=60, capture_output=True, text=True)
    assert output.stdout == "0 26 onea longer second partend"


def test_short_writes_are_continued_by_the_reference(file, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: real(
        fd, [b"".join(map(bytes, buffers))[:7]], position))
    buffers = [b"one", b"a longer second part", b"end"]
    assert reference.append_gathered(file, buffers, 2, False) == 26
    assert content(file) == b"\0\0onea longer second partend"

#: Says at which offsets a long append is synced, its writes being short or not.
LONG_APPEND = r"""
#include <stdio.h>
#include <sys/uio.h>
static ssize_t told_pwritev(int fd, const struct iovec *iov, int count, off_t position);
static int told_fdatasync(int fd);
#define pwritev told_pwritev
#define fdatasync told_fdatasync
#include "_disk.h"
#undef pwritev
#undef fdatasync

static size_t most, end;

static ssize_t told_pwritev(int fd, const struct iovec *iov, int count, off_t position) {
    size_t done = 0;
    (void)fd;
    for (int at = 0; at < count; at++) {
        done += iov[at].iov_len;
    }
    done = done < most ? done : most;
    end = (size_t)position + done;
    return (ssize_t)done;
}

static int told_fdatasync(int fd) {
    (void)fd;
    printf(" %zu", end);
    return 0;
}

int main(int count, char **arguments) {
    struct iovec iov[] = {{NULL, 500 << 10}, {NULL, 1100 << 10}, {NULL, 1 << 10}};
    size_t written;
    most = (size_t)atol(arguments[1]);
    int error = mr_append(-1, iov, 3, 0, count > 2, &written);
    printf(": %d %zu", error, written);
    return 0;
}
"""


@pytest.fixture(scope="module")
def long_append(tmp_path_factory):
    """Return the syncs of the C part while it appends 1601 KiB and no write takes more than
    ``most``."""
    directory = tmp_path_factory.mktemp("long")
    source, program = directory / "long_append.c", directory / "long_append"
    source.write_text(LONG_APPEND)
    compiler = sysconfig.get_config_var("CC").split()[0]
    headers = os.path.dirname(_core.__file__)
    subprocess.run([compiler, "-std=gnu11", "-I", headers, "-o", program, source, "-pthread"],
                   check=True, timeout=60)

    def run(most: int, *options: str) -> str:
        return subprocess.run([program, str(most), *options], check=True, timeout=60,
                              capture_output=True, text=True).stdout

    return run


STEP = 512 << 10
LONG = 1601 << 10


def test_a_long_append_is_synced_in_steps_by_the_compiled_twin(long_append):
    assert long_append(LONG, "sync") == f" {STEP} {2 * STEP} {3 * STEP} {LONG}: 0 {LONG}"
    assert long_append(STEP, "sync") == f" {STEP} {2 * STEP} {3 * STEP} {LONG}: 0 {LONG}"
    short = long_append(300 << 10, "sync")  # 300, then the 212 KiB that the step has left
    assert short == f" {STEP} {2 * STEP} {3 * STEP} {LONG}: 0 {LONG}"
    assert long_append(LONG) == f": 0 {LONG}"


def test_a_long_append_is_synced_in_steps_by_the_reference(file, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_size))
    buffers = [b"a" * (500 << 10), b"b" * (1100 << 10), b"c" * (1 << 10)]
    assert reference.append_gathered(file, buffers, 0, True) == LONG
    assert synced == [STEP, 2 * STEP, 3 * STEP, LONG]
    assert reference.append_gathered(file, buffers, 0, False) == LONG
    assert len(synced) == 4


def test_what_is_synced_in_steps_is_what_was_given(twin, file):
    buffers = [os.urandom(size) for size in (STEP - 1, 1, 1, 2 * STEP + 7, 0, STEP)]
    assert twin.append_gathered(file, buffers, 3, True) == 4 * STEP + 8
    assert content(file) == bytes(3) + b"".join(buffers)


def test_a_write_that_ends_early_says_why(twin):
    """A file size limit makes the first write short: what fits is written, the rest is an error."""
    script = (
        "import errno, os, resource, signal, sys\n"
        "import multiraft._core, multiraft.codec.reference\n"
        "twin = sys.modules[sys.argv[1]]\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))\n"
        "fd = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)\n"
        "try:\n"
        "    twin.append_gathered(fd, [b'x' * 600, b'y' * 600], 0, True)\n"
        "except OSError as error:\n"
        "    assert error.errno == errno.EFBIG, error\n"
        "    assert os.fstat(fd).st_size == 1000\n"
        "    sys.exit(7)\n")
    assert _run(script, twin.__name__) == 7


def _run(script: str, *arguments: str) -> int:
    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run([sys.executable, "-c", script, *arguments,
                               os.path.join(directory, "file")], timeout=60).returncode


def test_a_failed_write_is_an_oserror(twin, tmp_path):
    read_only = os.open(tmp_path / "lane", os.O_RDONLY | os.O_CREAT)
    try:
        with pytest.raises(OSError) as raised:
            twin.append_gathered(read_only, [b"x"], 0, True)
        assert raised.value.errno == errno.EBADF
        assert raised.value.strerror == os.strerror(errno.EBADF)
    finally:
        os.close(read_only)


def test_a_negative_position_is_refused(twin, file):
    with pytest.raises(ValueError, match="position=-1 is negative"):
        twin.append_gathered(file, [b"x"], -1, False)
    with pytest.raises(ValueError, match="position=-1 is negative"):
        twin.DiskQueue(file).submit(file, [b"x"], -1, False, 1)
    assert content(file) == b""


def test_a_failed_sync_is_an_oserror(twin):
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError) as raised:
            twin.append_gathered(writing, [], 0, True)
        assert raised.value.errno == errno.EINVAL
    finally:
        os.close(reading)
        os.close(writing)


def test_a_buffer_that_is_none_is_refused_before_anything_is_written(twin, file):
    with pytest.raises(TypeError):
        twin.append_gathered(file, [b"one", "two"], 0, False)
    assert content(file) == b""


@pytest.mark.parametrize("size", [0, 1, 3 << 20])
def test_unset_memory_is_a_bytearray_of_that_size(twin, size):
    memory = twin.unset_memory(size)
    assert type(memory) is bytearray and len(memory) == size
    memory[:] = b"x" * size
    assert memory == b"x" * size


def test_unset_memory_of_a_negative_size_is_refused(twin):
    with pytest.raises(ValueError, match="size=-1 is negative"):
        twin.unset_memory(-1)


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_trim_memory_returns_what_was_freed_between_blocks_that_stay():
    size, count = 8192, 8192
    blocks = [b"x" * size for _ in range(count)]
    kept = b"x" * size  # behind them, so that the heap's end does not fall
    before = resident()
    del blocks
    _core.trim_memory()
    if platform.libc_ver()[0] == "glibc":
        assert resident() < before - size * count * 3 // 4
    assert reference.trim_memory() is None
    assert len(kept) == size


# ---- DiskQueue ---------------------------------------------------------------------------------

class Worker:
    """A queue, its thread and the loop's side of the eventfd."""

    def __init__(self, twin):
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.queue = twin.DiskQueue(self.wake_fd)
        self.thread = threading.Thread(target=self.queue.run)
        self.completed = []

    def collect(self, count: int) -> list[tuple[int, int, int]]:
        """Wait on the eventfd until ``count`` jobs are done: (token, error, bytes) of each."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.completed) < count:
            ready, _, _ = select.select([self.wake_fd], [], [], deadline - time.monotonic())
            assert ready, f"{len(self.completed)} of {count} jobs completed"
            os.eventfd_read(self.wake_fd)
            self.completed += self.queue.completions()
        assert all(micros >= 0 for *_, micros in self.completed)
        return [completion[:3] for completion in self.completed]

    def stop(self) -> None:
        self.queue.close()
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()


@pytest.fixture
def worker(twin):
    worker = Worker(twin)
    worker.thread.start()
    yield worker
    worker.stop()
    os.close(worker.wake_fd)


@pytest.fixture
def idle(twin):
    """A queue whose worker has not started."""
    worker = Worker(twin)
    yield worker
    os.close(worker.wake_fd)


def test_jobs_complete_in_order_with_their_tokens(worker, file):
    for token in range(100):
        worker.queue.submit(file, [bytes([token]), b"-"], 2 * token, token % 10 == 0, token)
    assert worker.collect(100) == [(token, 0, 2) for token in range(100)]
    assert content(file) == b"".join(bytes([token]) + b"-" for token in range(100))


def test_a_job_without_buffers_is_a_plain_sync(worker, file):
    worker.queue.submit(file, [], 0, True, -5)
    assert worker.collect(1) == [(-5, 0, 0)]


def test_after_a_failure_nothing_touches_the_disk(worker, file, tmp_path):
    read_only = os.open(tmp_path / "other", os.O_RDONLY | os.O_CREAT)
    try:
        worker.queue.submit(file, [b"good"], 0, True, 1)
        worker.queue.submit(read_only, [b"bad"], 0, True, 2)
        worker.queue.submit(file, [b"late"], 0, True, 3)
        assert worker.collect(3) == [(1, 0, 4), (2, errno.EBADF, 0), (3, errno.ECANCELED, 0)]
        worker.queue.submit(file, [b"later"], 0, True, 4)
        assert worker.collect(4)[3] == (4, errno.ECANCELED, 0)
    finally:
        os.close(read_only)
    assert content(file) == b"good"


def test_close_finishes_what_was_submitted(idle, file):
    for token in range(50):
        idle.queue.submit(file, [b"x"], token, True, token)
    idle.queue.close()
    idle.queue.close()
    idle.thread.start()
    idle.thread.join(DEADLINE_S)
    assert not idle.thread.is_alive()
    assert [token for token, *_ in idle.queue.completions()] == list(range(50))
    assert os.eventfd_read(idle.wake_fd) == 50
    with pytest.raises(ValueError, match="closed"):
        idle.queue.submit(file, [b"x"], 0, True, 51)


def test_a_worker_that_waits_is_woken_by_close(worker):
    worker.stop()
    assert worker.queue.completions() == []


def test_one_worker_only(worker, file):
    worker.queue.submit(file, [], 0, False, 1)
    worker.collect(1)
    with pytest.raises(RuntimeError, match="worker already"):
        worker.queue.run()


def test_buffers_are_held_until_collected_and_then_let_go(idle, file):
    buffer = bytearray(b"held")
    idle.queue.submit(file, [buffer], 0, False, 1)
    with pytest.raises(BufferError):
        buffer.append(1)
    idle.thread.start()
    idle.collect(1)
    idle.stop()
    buffer.append(1)
    assert content(file) == b"held"


def test_a_queue_that_is_dropped_lets_go_of_its_buffers(twin, file):
    buffer = bytearray(b"held")
    queue = twin.DiskQueue(file)
    queue.submit(file, [buffer], 0, False, 1)
    del queue
    buffer.append(1)


def test_a_job_with_a_wrong_buffer_is_refused(idle, file):
    with pytest.raises(TypeError):
        idle.queue.submit(file, [b"x", "text"], 0, False, 1)
    idle.queue.close()
    idle.queue.run()
    assert idle.queue.completions() == []


def test_jobs_that_nobody_collects_are_bounded(idle, file):
    for token in range(1024):
        idle.queue.submit(file, [], 0, False, token)
    with pytest.raises(QueueFull, match="disk_queue_jobs: 1025 would exceed the limit of 1024"):
        idle.queue.submit(file, [], 0, False, 1024)
    idle.thread.start()
    idle.collect(1024)
    idle.queue.submit(file, [], 0, False, 1024)
    idle.collect(1025)
    idle.stop()


def test_a_wake_up_that_fails_ends_the_worker_with_an_error(twin, file, tmp_path):
    closed = os.open(tmp_path / "closed", os.O_RDONLY | os.O_CREAT)
    queue = twin.DiskQueue(closed)
    queue.submit(file, [b"x"], 0, False, 1)
    with pytest.raises(OSError):
        queue.run()
    os.close(closed)
    assert [token for token, *_ in queue.completions()] == [1]


def test_the_compiled_worker_does_not_need_the_interpreter(file):
    """The job is done while this thread holds on to the interpreter: only C code runs there."""
    worker = Worker(_core)
    worker.thread.start()
    worker.queue.submit(file, [], 0, False, 0)
    worker.collect(1)  # the thread is inside run() now
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no other thread gets the interpreter unless this one waits
    try:
        worker.queue.submit(file, [b"x"], 0, True, 1)
        deadline = time.monotonic() + DEADLINE_S
        while not worker.queue.completions():
            assert time.monotonic() < deadline
    finally:
        sys.setswitchinterval(interval)
        worker.stop()
        os.close(worker.wake_fd)
    assert content(file) == b"x"
