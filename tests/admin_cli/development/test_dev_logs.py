"""`multiraft dev logs`: last lines, new lines, levels, files of any size, restarts."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner

from admin_cli.development import dev_logs, dev_state
from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.session import Session


def event(second: int, node: int = 1, level: str = "info", name: str = "node_started",
          **fields: object) -> bytes:
    row = {"at": f"2026-11-26T06:00:{second:02}.000+00:00", "level": level, "node": node,
           "event": name, **fields}
    return json.dumps(row).encode() + b"\n"


class Logs:
    """A cluster of three nodes that were never started, with logs to write."""

    def __init__(self, directory: Path, environ: dict[str, str]):
        directory.mkdir()
        dev_state.write_configs(directory, record := dev_state.plan(3, 4, 3, 9100))
        dev_state.save(directory, record)
        self.directory, self._environ = directory, environ

    def path(self, node: int) -> Path:
        return dev_state.log_path(self.directory, node)

    def append(self, node: int, *lines: bytes) -> None:
        with open(self.path(node), "ab") as file:
            file.writelines(lines)

    def run(self, *arguments: str, steps=()):
        """Run the command; each step happens in one of its pauses, and then Ctrl-C."""
        waiting = list(steps)

        def pause(_seconds: float) -> None:
            if not waiting:
                raise KeyboardInterrupt
            waiting.pop(0)()

        return CliRunner().invoke(cli, ["dev", "logs", *arguments], prog_name="multiraft",
                                  obj=Session(self._environ, pause=pause))


@pytest.fixture
def logs(elsewhere, environ) -> Logs:
    return Logs(elsewhere / "dev-cluster", environ)


def test_lines_of_all_nodes_are_shown_in_the_order_of_time(logs):
    logs.append(1, event(1), event(4, name="node_stopped"))
    logs.append(2, event(2, 2, "warning", "majority_lost", group=7, reason="no answer"))
    assert logs.run().stdout.splitlines() == [
        "2026-11-26T06:00:01.000+00:00 node 1 INFO node_started",
        '2026-11-26T06:00:02.000+00:00 node 2 WARNING majority_lost group=7 reason="no answer"',
        "2026-11-26T06:00:04.000+00:00 node 1 INFO node_stopped"]


def test_one_node_or_several_are_chosen(logs):
    for node in (1, 2, 3):
        logs.append(node, event(node, node))
    assert [f"node {node}" in logs.run("1", "3").stdout for node in (1, 2, 3)] == [
        True, False, True]
    unknown = logs.run("9")
    assert unknown.exit_code == ExitCode.NOT_FOUND
    assert "Its nodes are 1, 2, 3." in unknown.stderr


@pytest.mark.parametrize("count, seconds", [(0, []), (1, [5]), (3, [3, 4, 5]),
                                            (9, [1, 2, 3, 4, 5])])
def test_the_last_lines_of_each_node_are_counted(logs, count, seconds):
    logs.append(1, *(event(second) for second in range(1, 6)))
    shown = logs.run("-n", str(count), "--json").stdout.splitlines()
    assert [int(json.loads(line)["at"][17:19]) for line in shown] == seconds


def test_a_level_is_searched_for_back_to_the_beginning(logs):
    logs.append(1, event(1, level="error", name="node_failed"),
                *(event(2) for _ in range(5_000)), event(3, level="warning", name="peer_lost"))
    assert logs.path(1).stat().st_size > 4 * dev_logs.BLOCK_BYTES
    shown = logs.run("-n", "2", "--level", "warning").stdout.splitlines()
    assert [line.split()[4] for line in shown] == ["node_failed", "peer_lost"]


def test_a_line_that_is_no_event_stays_behind_the_one_before_it(logs):
    logs.append(1, event(1), b"Traceback (most recent call last):\n", b"  \x1b[31mred\n")
    logs.append(2, event(2, 2))
    assert [line.split(" ", 1)[1] for line in logs.run("--level", "error").stdout.splitlines()] \
        == ["1 | Traceback (most recent call last):", "1 |   \\x1b[31mred"]
    assert [line.rpartition(" ")[2] for line in logs.run().stdout.splitlines()][-1] == \
        "node_started"


@pytest.mark.parametrize("name", ["at", "level", "fields"])
def test_a_line_that_is_nested_too_deeply_is_shown_as_text(name):
    lines = [b'{"%s": %s1%s}' % (name.encode(), b"[" * depth, b"]" * depth)
             for depth in [*range(900, 1_010), 20_000]]
    texts = [dev_logs.shown(dev_logs.line_of(1, line)) for line in lines]
    assert texts[0].count("[") == 900
    assert texts[-1] == f"node 1 | {lines[-1].decode()}"
    assert all(text.count("[") == line.count(b"[")
               for text, line in zip(texts, lines, strict=True))


def test_a_traceback_of_an_event_follows_behind_bars(logs):
    logs.append(1, event(1, level="critical", name="node_crashed", traceback="a\nb"))
    assert logs.run().stdout.splitlines()[1:] == ["  | a", "  | b"]


def test_json_is_what_the_node_wrote_and_json_for_all_else(logs):
    logs.append(1, event(1, group=3), b"{broken\n", b"text\n", b"[1]\n")
    rows = logs.run("--json").stdout.splitlines()
    assert rows[0] == event(1, group=3).decode().rstrip()
    assert [json.loads(row) for row in rows[1:]] == [
        {"node": 1, "text": text} for text in ("{broken", "text", "[1]")]


def test_new_lines_follow_through_restart_truncation_and_replacement(logs):
    logs.append(1, event(1))

    def restart() -> None:  # appends, as `dev start` does, and leaves a line unfinished
        logs.append(1, event(2), event(3)[:10])

    def finish() -> None:
        logs.append(1, event(3)[10:])

    def truncate() -> None:
        logs.path(1).write_bytes(event(4))

    def replace() -> None:
        other = logs.path(1).with_name("new")
        other.write_bytes(event(5) * 9)
        other.replace(logs.path(1))

    def remove() -> None:
        logs.path(1).unlink()

    shown = logs.run("-f", "1", "--json", steps=[restart, finish, truncate, replace, remove,
                                                 lambda: logs.append(1, event(6))])
    assert shown.exit_code == ExitCode.INTERRUPTED
    seconds = [int(json.loads(line)["at"][17:19]) for line in shown.stdout.splitlines()]
    assert seconds == [1, 2, 3, 4, *[5] * 9, 6]


def test_a_node_that_joins_is_followed(logs):
    def join() -> None:
        record = dev_state.load(logs.directory)
        record.nodes.append(node := dev_state.next_node(record))
        dev_state.write_joining_config(logs.directory, record, node)
        dev_state.save(logs.directory, record)
        logs.append(4, event(1, 4))

    assert "node 4" in logs.run("-f", steps=[join]).stdout


def test_a_cluster_that_is_removed_ends_the_command(logs):
    wiped = logs.run("-f", steps=[lambda: (logs.directory / "cluster.json").unlink()])
    assert wiped.exit_code == 0
    assert "was removed" in wiped.stderr


def test_a_log_that_is_not_there_yet_is_empty(logs):
    assert logs.run().stdout == ""


def test_the_last_line_is_shown_also_without_its_end(logs):
    logs.append(1, event(1), event(2).rstrip())
    assert len(logs.run().stdout.splitlines()) == 2
    assert len(logs.run("-n", "1").stdout.splitlines()) == 1


def test_a_line_without_end_is_cut(logs):
    logs.append(1, b"{" + b"x" * (3 * dev_logs.READ_BYTES_MAX), b"\n", event(1))
    rows = [json.loads(row) for row in logs.run("--json", "-n", "2").stdout.splitlines()]
    assert rows[0]["text"] == "{" + "x" * (dev_logs.LINE_BYTES_MAX - 1)
    assert rows[1]["event"] == "node_started"


def test_the_memory_for_a_huge_log_is_that_for_a_small_one(logs):
    path = logs.path(1)
    with open(path, "wb") as file:
        for _ in range(200):
            file.write(event(1, reason="x" * 100) * 200)
    assert path.stat().st_size > 7 << 20
    tracemalloc.start()
    position = dev_logs.tail(path, 1, 100_000, "error")  # none is: it is read to its beginning
    file = dev_logs.LogFile(path, 1, position)
    lines = sum(1 for _ in file.read_all())
    _now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (position, lines) == (0, 200 * 200)
    assert most < 4 << 20
