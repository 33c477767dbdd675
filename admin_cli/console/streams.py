"""Standard input, output and error: complete, or the command fails and reports it.

Contract.  `install` puts streams over descriptors 0, 1 and 2 in place of Python's own; all writers
to ``sys.stdout`` or ``sys.stderr`` (click, rich, commands of other packages) use them from then on.
A partial write is continued, and a descriptor that does not block is polled.  A failed write to
standard output raises `StreamFailed`, once; a reader that has closed the pipe raises `ReaderGone`.
Both are click's exceptions and not ``OSError``, so that no handler of network errors takes them for
one.  Standard error is for people and never changes what a command does: text that it does not take
is dropped.

Invariants.  Descriptors 0 to 2 are always taken, so no socket and no file becomes the standard
output of a command that was started without one.  After a failure a stream drops its input, so that
the interpreter's own flush at the end cannot fail.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import Any

import click

from admin_cli.failures import CommandFailed, reason

#: The size of Python's own buffers.
BUFFER_BYTES = 1 << 16


class StreamFailed(CommandFailed):
    """A standard stream that cannot be read or written."""

    was_shown = False

    def show(self, file: Any = None) -> None:
        """Print the sentence to standard error, once."""
        if not self.was_shown:
            self.was_shown = True
            super().show(file)


class ReaderGone(click.ClickException):
    """The reader of standard output has closed the pipe, which is not a failure."""

    exit_code = 0

    def __init__(self) -> None:
        super().__init__("standard output: its reader has gone")

    def show(self, file: Any = None) -> None:
        """Print nothing: `| head` has read what it wanted."""


class _Stream(io.RawIOBase):
    """One descriptor; -1 = it was closed when the command began."""

    def __init__(self, descriptor: int, name: str):
        super().__init__()
        self._descriptor = descriptor
        self.name = name

    def fileno(self) -> int:
        """Return the descriptor. Raises ``io.UnsupportedOperation`` for a stream that was closed
        when the command began."""
        if self._descriptor < 0:
            raise io.UnsupportedOperation(f"{self.name} is closed")
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def _failed(self, error: OSError) -> StreamFailed:
        return StreamFailed(f"{self.name} is closed." if error.errno == errno.EBADF else
                            f"{self.name}: {reason(error)}.")

    def _wait(self, events: int) -> None:
        waiting = select.poll()
        waiting.register(self._descriptor, events)
        waiting.poll()


class InputStream(_Stream):
    """Standard input.  Raises ``StreamFailed``."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                return os.readv(self._descriptor, [buffer])
            except BlockingIOError:
                self._wait(select.POLLIN)
            except OSError as error:
                raise self._failed(error) from error


class OutputStream(_Stream):
    """Standard output.  ``failure``: the reason why it takes no more."""

    def __init__(self, descriptor: int, name: str):
        super().__init__(descriptor, name)
        self.failure: click.ClickException | None = None
        self.outlives_reader = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write some of ``data`` and return how many bytes; the buffer above writes the rest. After
        a failure drop everything. Raises ``StreamFailed`` and ``ReaderGone``, each once."""
        if self.failure is None:
            try:
                return self._write(data)
            except OSError as error:
                gone = error.errno == errno.EPIPE
                self.failure = ReaderGone() if gone else self._failed(error)
                if not (gone and self.outlives_reader):
                    raise self.failure from error
        return memoryview(data).nbytes

    def _write(self, data: Any) -> int:
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                self._wait(select.POLLOUT)


class NoteStream(OutputStream):
    """Standard error: text that it does not take is dropped."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(StreamFailed, ReaderGone):
            return super().write(data)
        return memoryview(data).nbytes


def install() -> None:
    """Put the streams of this module in the place of those that are still Python's own; streams
    that tests put there stay."""
    _take_free_descriptors()
    if sys.stdin is sys.__stdin__:
        raw = InputStream(_number(sys.stdin, 0), "standard input")
        sys.stdin = io.TextIOWrapper(io.BufferedReader(raw, BUFFER_BYTES),
                                     _encoding(sys.__stdin__), "surrogateescape")
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(OutputStream(_number(sys.stdout, 1), "standard output"),
                           sys.__stdout__)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(NoteStream(_number(sys.stderr, 2), "standard error"), sys.__stderr__)


def _take_free_descriptors() -> None:
    """Open the null device on closed descriptors, in the direction that refuses their use."""
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # takes the lowest free number


def _number(stream: Any, number: int) -> int:
    """Return ``number``, or -1 if Python has no stream: there was no descriptor at its start."""
    return number if stream is not None else -1


def _encoding(stream: Any) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _text(raw: OutputStream, before: Any) -> io.TextIOWrapper:
    """Return a text stream that writes characters which the encoding lacks as escapes."""
    return io.TextIOWrapper(io.BufferedWriter(raw, BUFFER_BYTES), _encoding(before),
                            "backslashreplace", line_buffering=True)


def _output() -> OutputStream | None:
    """Return the stream that `install` put in the place of standard output; None where it did not.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, OutputStream) else None


@contextlib.contextmanager
def outlived_reader() -> Iterator[None]:
    """Run the body to its end even if the reader of its output has closed the pipe, because its
    effect is not complete yet."""
    output = _output()
    if output is None:
        yield
        return
    before, output.outlives_reader = output.outlives_reader, True
    try:
        yield
    finally:
        output.outlives_reader = before


def finish(code: int) -> int:
    """Write buffered output and return the exit code: ``code``, or if that is 0 the one of a failed
    output, whose error is shown."""
    with contextlib.suppress(StreamFailed, ReaderGone):
        sys.stdout.flush()
    output = _output()
    if output is not None and isinstance(output.failure, StreamFailed):
        output.failure.show()
        code = code or output.failure.exit_code
    sys.stderr.flush()
    return code
