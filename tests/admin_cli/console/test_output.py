"""Output: tables on terminals of any width, and text that cannot control the terminal."""

from __future__ import annotations

import errno
import os
import pty
import re
import signal

import pytest

from admin_cli.console import output
from admin_cli.values.text import in_one_line, json_printable, printable
from tests.admin_cli.command import started

WIDTHS = [200, 120, 80, 60, 40, 20, 7, 1]
#: Of each table: what must be found whole at any width.
WHOLE = {("cluster", "status"): ("replicas", "behind", "version", "address", "127.0.0.1:9101"),
         ("node", "list"): ("replicas", "version", "address", "127.0.0.1:9101",
                            "2023-11-14T22:13:20+00:00"),
         ("group", "describe", "1"): ("durable", "applied", "follower", "replicate")}


def on_a_terminal(columns: int, *arguments: str) -> str:
    """Return the output on a terminal, without its colours."""
    terminal, side = pty.openpty()
    process = started(*arguments, stdout=side, stderr=side,
                      environ={"COLUMNS": str(columns), "TERM": "xterm"})
    os.close(side)
    shown = b""
    try:
        while data := os.read(terminal, 65_536):
            shown += data
    except OSError as error:
        assert error.errno == errno.EIO  # the other side is closed
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert process.wait(60) == 0, text
    return text


@pytest.mark.parametrize("columns", [80, 40, 20])
@pytest.mark.parametrize("arguments", WHOLE, ids=" ".join)
def test_no_word_and_no_address_is_cut(arguments, columns):
    shown = on_a_terminal(columns, *arguments)
    left_out = set("".join(re.findall(r"\(--wide also shows: (.*)\)", shown)).split(", "))
    for word in WHOLE[arguments]:
        assert word in shown or left_out & {word, f"client {word}"} or (
            word.startswith("127") and "client address" in left_out) or (
            "+00:00" in word and "since" in left_out)


@pytest.mark.parametrize("lines", [24, 9])
def test_watching_redraws_without_clearing_and_gives_the_terminal_back(lines):
    terminal, side = pty.openpty()
    process = started("cluster", "status", "--watch", "--interval", "0.1", stdout=side,
                      stderr=side, environ={"COLUMNS": "80", "LINES": str(lines), "TERM": "xterm"})
    os.close(side)
    shown, interrupted = b"", False
    try:
        while data := os.read(terminal, 65_536):
            shown += data
            if shown.count(b"refreshed every 0.1 s") >= 3 and not interrupted:
                process.send_signal(signal.SIGINT)
                interrupted = True
    except OSError as error:
        assert error.errno == errno.EIO
    os.close(terminal)
    assert process.wait(60) == 130
    live, _, after = shown.partition(b"\x1b[?1049l")
    assert live.startswith(b"\x1b[?1049h") and b"\x1b[2J" not in shown
    assert b"\x1b[?25l" in live and shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l")
    assert (b"lines more" in live) == (lines == 9)
    assert after.endswith(b"quarantined replicas: none\r\ninterrupted\r\n")
    frames = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", live).split(b"refreshed every")[1:]
    # Ctrl-C may come while the third one or a later one is written.
    whole = {frame.count(b"\n") for frame in frames[:2]}
    assert whole == {lines - 1}, "a frame fills the screen"


#: Columns of a terminal -> columns of `cluster status`.
STATUS_COLUMNS = {
    80: "node state uptime leads replicas behind lag disk free",
    100: "node state uptime leads replicas behind lag disk used disk free",
    120: "node state version uptime leads replicas behind lag log disk used disk free",
    160: "node state version uptime leads replicas behind lag log disk used disk free rack "
         "client address"}


@pytest.mark.parametrize("columns", STATUS_COLUMNS)
def test_a_status_has_a_line_per_node_at_any_width(columns):
    lines = on_a_terminal(columns, "cluster", "status").splitlines()
    assert all(len(line) <= columns for line in lines)
    assert lines[2].split() == STATUS_COLUMNS[columns].split()
    assert [line.split()[:2] for line in lines[4:7]] == [[str(n), "ready"] for n in (1, 2, 3)]
    assert ("--wide" in lines[7]) == (columns < 160)


@pytest.mark.parametrize("command", ["cluster status", "node list", "group describe 1"])
def test_wide_shows_all_columns_and_a_line_per_row(command):
    lines = on_a_terminal(40, *command.split(), "--wide").splitlines()
    [header] = [at for at, line in enumerate(lines) if line.startswith("node  ")]
    assert len(lines[header]) > 80
    assert [line.split()[0] for line in lines[header + 2:header + 5]] == ["1", "2", "3"]
    assert not any("also shows" in line for line in lines)


@pytest.mark.parametrize("room", WIDTHS)
def test_every_word_of_a_table_is_whole_and_in_its_room(room):
    columns = ("node", "state", "disk used", "", "client address", "why")
    cells = [["1", "not ready", "1.5 GiB", "████", "[fe80::1%eth0]:9101",
              "it lacks 2,000 entries of group 7, and nobody who has them answers"],
             ["12", "-", "-", "", "host.example.org:19101", ""]]
    widths = output.table_widths(columns, cells, room)
    words = {word for row in [columns, *cells] for cell in row for word in cell.split()}
    if widths is not None:
        assert sum(widths) + output.TABLE_GAP * 5 <= room
        return
    lines = output.row_lines(columns, cells, room)
    assert {word for line in lines for word in line.split()} >= words - {""}
    longest = max(map(len, words)) + 2 * len(output.INDENT)
    assert all(len(line) <= max(room, longest) for line in lines)


@pytest.mark.parametrize("columns", [80, 40, 20])
def test_the_status_has_the_addresses_of_the_clients_at_any_width(columns):
    assert "127.0.0.1:9101" in on_a_terminal(columns, "cluster", "status")


def test_a_table_is_not_wider_than_its_widths_and_gaps():
    shown = on_a_terminal(200, "topic", "list").splitlines()
    assert shown[0].rstrip() == "topic  partitions  replicas"
    assert shown[2].rstrip() == "t               1         3"


@pytest.mark.parametrize(("room", "shown"), [(30, "abcd"), (22, "abd"), (15, "ad"), (9, "ad"),
                                             (8, "abcd")])
def test_columns_are_left_out_in_their_order_until_the_others_fit(room, shown):
    columns = ("a", "b", "c", "d")
    cells = [["1", "bbbbbb", "cccccc", "dddddd"]]
    kept = output.kept_columns(columns, cells, room, ("c", "b"))
    assert "".join(columns[at] for at in kept) == shown


def test_a_wide_terminal_has_a_line_per_row():
    columns, cells = ("node", "address"), [["1", "a:1"], ["2", "b:2"]]
    assert output.table_widths(columns, cells, 80) == [4, 7]


def test_prose_is_wrapped_before_rows_become_lines():
    cells = [["1", "so many words that the table would be too wide for the terminal"]]
    widths = output.table_widths(("move", "why"), cells, 40)
    assert widths == [4, 34]


@pytest.mark.parametrize("evil, shown", [
    ("\x1b[31mred", "\\x1b[31mred"), ("a\x9b31m", "a\\x9b31m"), ("a\x7f", "a\\x7f"),
    ("caf\udce9", "caf\\udce9"), ("a\u202eb", "a\\u202eb"), ("é 日本 👍", "é 日本 👍")])
def test_what_others_named_does_not_move_the_cursor(evil, shown):
    assert printable(evil) == in_one_line(evil) == shown
    assert "\x9b" not in json_printable(evil)


def test_a_cell_is_one_line():
    assert in_one_line("a\nb\tc") == "a\\nb\\tc"


def test_names_of_others_are_escaped_in_tables_and_errors(run, cluster):
    cluster.topics["\x1b]0;title\x07"] = [[]]
    for arguments in (("topic", "list"), ("topic", "list", "--json"),
                      ("topic", "describe", "\x1b[2J"), ("\x1b[2J",)):
        result = run(*arguments)
        assert "\x1b" not in result.output and "\x07" not in result.output


@pytest.mark.parametrize("environ, shown", [({"PYTHONIOENCODING": "ascii"}, b"\\u00e9"),
                                            ({"PYTHONIOENCODING": "utf-8"}, "é".encode())])
def test_json_is_json_in_any_encoding(environ, shown):
    process = started("topic", "describe", "é", "--json", environ={**environ, "NAMED": "é"},
                      stdout=-1)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert shown in out
