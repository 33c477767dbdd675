"""Standard streams that are full, closed, slow or do not block: all of it, or a sentence and 1."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pty
import resource
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import tty

import pytest

from admin_cli.console.streams import InputStream
from admin_cli.failures import ExitCode
from tests.admin_cli.command import LINE_BYTES, shell, started

#: More than a pipe and all buffers hold.
MANY = 20_000
POLL_S = 0.01
UNBUFFERED = [{}, {"PYTHONUNBUFFERED": "1"}]
#: Commands that answer on standard output, each in another way.
ANSWERS = [("consume", "t"), ("consume", "t", "--json"), ("topic", "list"),
           ("topic", "list", "--json"), ("topic", "describe", "t"), ("cluster", "status"),
           ("cluster", "status", "--json"), ("node", "list"), ("group", "list"), ("version",),
           ("completion", "zsh"), ("--help",), ("topic", "--help"), ("--version",),
           ("chaos", "planted", "--list"), ("chaos", "sim", "--counters")]


def names(answers) -> list[str]:
    return [" ".join(arguments) for arguments in answers]


def assert_said(err: bytes, *parts: str) -> None:
    text = err.decode()
    assert "Traceback" not in text and "Exception ignored" not in text
    for part in parts:
        assert part in text


@pytest.mark.parametrize("environ", UNBUFFERED, ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("answer", ANSWERS, ids=names(ANSWERS))
def test_a_full_disk_is_said_and_nobody_else_is_blamed(answer, environ):
    done = shell('"$@" > /dev/full', *answer, environ=environ)
    assert_said(done.stderr, "standard output: no space left on device")
    assert done.returncode == ExitCode.FAILED
    assert b"no answer from" not in done.stderr


@pytest.mark.parametrize("answer", ANSWERS, ids=names(ANSWERS))
def test_a_closed_output_is_said(answer):
    done = shell('"$@" >&-', *answer)
    assert_said(done.stderr, "standard output is closed")
    assert done.returncode == ExitCode.FAILED


@pytest.mark.parametrize("answer", ANSWERS, ids=names(ANSWERS))
@pytest.mark.parametrize("how", ["<&-", "2>&-", "2>/dev/full", "<&- 2>&-", "2>&1"])
def test_what_is_not_needed_may_be_closed_or_full(answer, how):
    done = shell(f'"$@" {how}', *answer)
    assert done.returncode == 0
    assert done.stdout
    assert_said(done.stderr)


def test_all_closed_is_only_an_exit_code():
    done = shell('"$@" <&- >&- 2>&-', "topic", "list")
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.FAILED, b"", b"")


@pytest.mark.parametrize("answer", ANSWERS, ids=names(ANSWERS))
def test_a_reader_that_is_gone_is_no_failure(answer):
    reading, writing = os.pipe()
    os.close(reading)
    process = started(*answer, stdout=writing, records=MANY)
    os.close(writing)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


@pytest.mark.parametrize("environ", UNBUFFERED, ids=["buffered", "unbuffered"])
def test_a_file_that_may_not_grow_is_said(tmp_path, environ):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))

    with open(tmp_path / "out", "wb") as out:
        process = started("consume", "t", records=MANY, stdout=out, environ=environ,
                          preexec_fn=limit)
    _, err = process.communicate(timeout=60)
    assert_said(err, "standard output: file too large")
    assert process.returncode == ExitCode.FAILED
    assert (tmp_path / "out").stat().st_size == 100 << 10


@pytest.mark.parametrize("environ", UNBUFFERED, ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("blocks", [True, False], ids=["stopped and continued", "non-blocking"])
def test_a_slow_reader_gets_all_of_it(blocks, environ):
    reading, writing = os.pipe()
    os.set_blocking(writing, blocks)
    process = started("consume", "t", records=MANY, stdout=writing, environ=environ)
    os.close(writing)
    size = 0
    while data := os.read(reading, 50_000):
        size += len(data)
        if blocks and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGCONT)
    os.close(reading)
    assert process.communicate(timeout=60)[1] == b""
    assert (process.returncode, size) == (0, MANY * LINE_BYTES)


def test_a_terminal_gets_all_of_it_while_it_is_stopped_and_continued():
    terminal, side = pty.openpty()
    tty.setraw(side, termios.TCSANOW)
    process = started("consume", "t", records=2_000, stdout=side)
    os.close(side)
    size = 0
    try:
        while data := os.read(terminal, 4_096):
            size += len(data)
            if process.poll() is None:
                process.send_signal(signal.SIGSTOP)
                process.send_signal(signal.SIGCONT)
    except OSError as error:
        assert error.errno == errno.EIO  # the other side is closed
    os.close(terminal)
    process.communicate(timeout=60)
    assert (process.returncode, size) == (0, 2_000 * LINE_BYTES)


def await_read(pipe: int) -> None:
    """Until nothing is left in it."""
    deadline = time.monotonic() + 30
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]:
        assert time.monotonic() < deadline, "nobody reads"
        time.sleep(POLL_S)


# -- input ----------------------------------------------------------------------------------------

def test_produce_without_input_says_so():
    done = shell('"$@" <&-', "produce", "t")
    assert_said(done.stderr, "standard input is closed", "0 records acknowledged")
    assert done.returncode == ExitCode.FAILED


def test_an_empty_pipe_that_does_not_block_is_not_the_end():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    source = io.BufferedReader(InputStream(reading, "standard input"))
    later = threading.Timer(0.2, os.write, (writing, b"a\n"))  # the read begins before it
    later.start()
    assert source.read1(100) == b"a\n"
    os.close(writing)
    assert source.read1(100) == b""
    later.join()
    os.close(reading)


def test_input_that_does_not_block_is_waited_for():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process = started("produce", "t", "--json", stdin=reading, stdout=subprocess.PIPE)
    for part in (b"a\nb", b"b\n", b"c\n"):
        assert process.poll() is None
        os.write(writing, part)
        await_read(reading)  # the command looks again, and finds nothing
    os.close(writing)
    out, err = process.communicate(timeout=60)
    os.close(reading)
    assert process.returncode == 0, err
    assert b'"records": 3, "acknowledged": 3' in out


def test_input_that_fails_is_said_and_what_was_read_is_sent(tmp_path):
    done = shell('"$@" --file /proc/self/mem', "produce", "t")
    assert_said(done.stderr, "/proc/self/mem cannot be read: ", "0 records acknowledged")
    assert done.returncode == ExitCode.FAILED


def test_counts_that_cannot_be_said_fail():
    done = shell('echo a | "$@" > /dev/full', "produce", "t", "--json")
    assert_said(done.stderr, "standard output: no space left on device")
    assert done.returncode == ExitCode.FAILED


@pytest.mark.parametrize("arguments, words", [
    ((), b"Type records, one per line; Ctrl-D ends."),
    (("--from-json",), b'such as {"value": "hello"}; Ctrl-D ends.'),
    (("--format", r"%k %v\n"), b"in the format that was given; Ctrl-D ends.")])
def test_a_person_who_types_is_told_how_to_end_and_sees_no_progress(arguments, words):
    terminal, side = pty.openpty()
    tty.setraw(side, termios.TCSANOW)
    process = started("produce", "t", *arguments, stdin=side, stdout=subprocess.DEVNULL,
                      stderr=side, environ={"TERM": "xterm"})
    os.close(side)
    text = os.read(terminal, 4_096)
    while b"ends." not in text:
        text += os.read(terminal, 4_096)
    assert words in text
    os.write(terminal, b'{"value": "a"}\n')
    process.send_signal(signal.SIGINT)
    try:
        while data := os.read(terminal, 4_096):
            text += data
    except OSError as error:
        assert error.errno == errno.EIO
    os.close(terminal)
    assert process.wait(60) == ExitCode.INTERRUPTED
    assert b"\x1b" not in text, "nothing is drawn"
    assert b"interrupted" in text


def test_progress_counts_records_and_not_bytes(tmp_path):
    (tmp_path / "lines").write_bytes(b"a\n" * 1_000)
    terminal, side = pty.openpty()
    process = started("produce", "t", "--file", str(tmp_path / "lines"), stdout=subprocess.DEVNULL,
                      stderr=side, environ={"TERM": "xterm"})
    os.close(side)
    text = b""
    try:
        while data := os.read(terminal, 4_096):
            text += data
    except OSError as error:
        assert error.errno == errno.EIO
    os.close(terminal)
    assert process.wait(60) == 0, text
    assert b" records " in text and b"bytes" not in text


# -- encodings ------------------------------------------------------------------------------------

@pytest.mark.parametrize("environ", [
    {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0",
                                                     "PYTHONUTF8": "0"},
    {"TERM": "dumb"}, {"COLUMNS": "0"}, {"COLUMNS": "abc"}, {"COLUMNS": "²", "LINES": "²"},
    {"COLUMNS": "-5"}, {"COLUMNS": "1"}])
@pytest.mark.parametrize("answer", [("cluster", "status"), ("node", "list"),
                                    ("cluster", "status", "--json"), ("consume", "t", "--json")],
                         ids=" ".join)
def test_odd_environments_are_no_traceback(answer, environ):
    terminal, side = pty.openpty()
    process = started(*answer, stdout=side, stderr=side, environ=environ)
    os.close(side)
    text = b""
    try:
        while data := os.read(terminal, 65_536):
            text += data
    except OSError as error:
        assert error.errno == errno.EIO
    os.close(terminal)
    assert process.wait(60) == 0, text
    assert b"Traceback" not in text


# -- interrupts -----------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments", [
    ("cluster", "status", "--watch", "--interval", "60"), ("produce", "t")], ids=" ".join)
def test_ctrl_c_is_one_line_and_130(arguments):
    stdin, open_end = os.pipe()
    process = started(*arguments, stdin=stdin, stdout=subprocess.PIPE)
    if arguments[0] == "produce":
        os.write(open_end, b"a\n")
        await_read(stdin)
    else:
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    os.close(open_end)
    os.close(stdin)
    assert process.returncode == ExitCode.INTERRUPTED
    assert err.splitlines()[-1] == b"interrupted"
    assert_said(err)


@pytest.mark.parametrize("number", [1, 2])
def test_a_closed_descriptor_is_not_taken_by_a_file(number):
    """The first file opened would become standard output, and get its text."""
    script = ("import os, sys; from admin_cli.console import streams; streams.install(); "
              "file = os.open('/dev/null', os.O_RDONLY); sys.exit(0 if file > 2 else 9)")
    done = subprocess.run(["bash", "-c", f'"$@" {number}>&-', "bash", sys.executable, "-c", script],
                          check=False)
    assert done.returncode == 0


def test_a_command_that_shall_act_goes_on_without_a_reader():
    script = ("import sys; from admin_cli.console import streams; streams.install()\n"
              "with streams.outlived_reader():\n"
              "    for _ in range(3): print('x' * 100_000, flush=True)\n"
              "sys.exit(streams.finish(7))")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE,
                          check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (7, b"")
