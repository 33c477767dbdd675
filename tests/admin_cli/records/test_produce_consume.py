"""Lines in, lines out: what becomes a record, what is counted, how it ends."""

from __future__ import annotations

import io
import json
import os
import sys
import threading

import pytest

from admin_cli.console import options
from admin_cli.failures import ExitCode
from admin_cli.records import appender as appender_module
from admin_cli.records import consume as consume_module
from admin_cli.records import produce as produce_module
from admin_cli.records import record_source
from admin_cli.records.appender import Appender, Settings
from admin_cli.records.record_source import read_lines
from admin_cli.values.spans import ENDS
from multiraft.client.blocking import Gap, Timestamp
from multiraft.wire import errors as wire
from tests.admin_cli import fakes
from tests.admin_cli.fakes import FakeClient, FakeConsumer


@pytest.fixture
def topic(cluster) -> str:
    cluster.topics["t"] = [[]]
    return "t"


def values(cluster, partition: int = 0) -> list[bytes]:
    return [value for _key, value in cluster.topics["t"][partition]]


# -- produce --------------------------------------------------------------------------------------

@pytest.mark.parametrize("data, expected", [
    (b"a\nb\n", [b"a", b"b"]), (b"a\nb", [b"a", b"b"]), (b"", []), (b"\n\n", [b"", b""]),
    (b"a\r\n", [b"a\r"]), (b"\xff\x00\n", [b"\xff\x00"]),
])
def test_a_line_is_a_record_byte_for_byte(run, cluster, topic, data, expected):
    assert run("produce", topic, input=data).exit_code == 0
    assert values(cluster) == expected


def test_records_come_from_a_file(run, cluster, topic, tmp_path):
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    assert run("produce", topic, "--file", str(tmp_path / "lines")).exit_code == 0
    assert values(cluster) == [b"a", b"b"]


def test_the_first_separator_ends_the_key(run, cluster, topic):
    assert run("produce", topic, "--key-separator", "::", input=b"k::v::w\n::e\n").exit_code == 0
    assert cluster.topics["t"][0] == [(b"k", b"v::w"), (b"", b"e")]


def test_a_line_without_the_separator_ends_it_and_says_where(run, topic):
    result = run("produce", topic, "--key-separator", ":", input=b"a:1\nb2\n")
    assert result.exit_code == ExitCode.FAILED
    assert "line 2 has no ':'" in result.stderr


def test_the_options_reach_the_producer(run, cluster, topic):
    run("produce", topic, "--acks", "leader", "--compression", "zstd", input=b"a\n")
    assert cluster.producer_options == {"acks": "leader", "compression": "zstd",
                                        "delivery_timeout_ms": 30_000}


def test_a_partition_is_obeyed_and_a_missing_one_not_found(run, cluster):
    cluster.topics["t"] = [[], []]
    assert run("produce", "t", "--partition", "1", input=b"a\n").exit_code == 0
    assert values(cluster, 1) == [b"a"]
    result = run("produce", "t", "--partition", "2", input=b"a\n")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "0 to 1" in result.stderr


def test_the_counts_come_last(run, topic):
    result = run("produce", topic, input=b"a\nb\nc\nd\n")
    assert result.stderr.splitlines()[-1] == "t: 4 records acknowledged (commit)."
    result = run("produce", topic, "--json", input=b"a\n")
    assert json.loads(result.stdout) == {"topic": "t", "records": 1, "acknowledged": 1,
                                         "ambiguous": 0, "refused": 0}


@pytest.mark.parametrize("flags", [[], ["--partition", "0"]], ids=["many", "one by one"])
def test_batches_that_span_blocks_of_input_are_counted_once(run, topic, monkeypatch, flags):
    monkeypatch.setattr(record_source, "BLOCK_BYTES", 5)
    result = run("produce", topic, "--json", *flags, input=b"".join(b"%03d\n" % n
                                                                    for n in range(50)))
    assert json.loads(result.stdout)["acknowledged"] == 50


def test_ambiguous_records_are_counted_and_change_the_exit_code(run, cluster, topic):
    cluster.outcomes[b"d"] = wire.AmbiguousOutcome("no answer")
    result = run("produce", topic, "--json", input=b"a\nb\nc\nd\ne\n")
    assert result.exit_code == ExitCode.AMBIGUOUS
    assert json.loads(result.stdout) == {"topic": "t", "records": 5, "acknowledged": 3,
                                         "ambiguous": 2, "refused": 0}
    assert "2 records may or may not have been appended: no answer." in result.stderr


def test_a_refusal_is_counted_and_nothing_more_is_read(run, cluster, topic, monkeypatch):
    monkeypatch.setattr(record_source, "BLOCK_BYTES", 6)
    cluster.outcomes[b"b"] = wire.StorageFull("disk full")
    result = run("produce", topic, "--json", input=b"a\nb\nc\nd\ne\nf\n")
    assert result.exit_code == ExitCode.FAILED
    assert json.loads(result.stdout)["refused"] == 3
    assert values(cluster) == []
    assert "disk full" in result.stderr


def test_a_refusal_for_a_missing_key_names_the_flags_that_give_one(run, cluster, topic):
    cluster.outcomes[b"a"] = wire.RecordsWithoutKey("1 of 1 records have no key", records=(0,))
    result = run("produce", topic, input=b"a\n")
    assert result.exit_code == ExitCode.FAILED
    assert "1 record refused: 1 of 1 records have no key." in result.stderr
    assert "Give each record a key: --key for all, --key-separator" in result.stderr


def test_nothing_is_appended_behind_a_record_that_failed_while_others_waited(
        run, cluster, topic, monkeypatch):
    monkeypatch.setattr(record_source, "BLOCK_BYTES", 6)
    monkeypatch.setattr(appender_module, "HELD_BYTES_MAX", 30)
    cluster.batch_records = 100  # open until the appender waits
    cluster.outcomes[b"b"] = wire.StorageFull("disk full")
    result = run("produce", topic, "--json", input=b"a\nb\nc\nd\ne\nf\n")
    assert result.exit_code == ExitCode.FAILED
    assert json.loads(result.stdout)["refused"] == 3
    assert values(cluster) == []


@pytest.mark.parametrize("flags", [[], ["--from-json"], ["-f", r"%v\n"]])
def test_a_failure_in_a_pause_ends_the_command_without_more_input(run, cluster, topic, flags):
    cluster.outcomes[b"1"] = wire.StorageFull("disk full")
    reader, writer = os.pipe()
    ended, needed = threading.Event(), []
    first, more = (b'{"value": "1"}\n{"val', b'ue": "2"}\n') if "--from-json" in flags else (
        b"1\n2", b"3\n")
    os.write(writer, first)

    def feed():
        if not ended.wait(10):
            needed.append(more)
            os.write(writer, more)
        os.close(writer)

    feeder = threading.Thread(target=feed)
    feeder.start()
    result = run("produce", topic, "--json", "--file", f"/dev/fd/{reader}", *flags)
    ended.set()
    feeder.join()
    os.close(reader)
    assert not needed, "the command waited for more input"
    assert result.exit_code == ExitCode.FAILED
    assert (json.loads(result.stdout)["refused"], values(cluster)) == (1, [])
    assert "disk full" in result.stderr


@pytest.mark.parametrize("flags", [[], ["--partition", "0"]], ids=["many", "one by one"])
def test_all_bytes_of_a_line_in_several_blocks_count_as_held(run, cluster, topic, monkeypatch,
                                                             flags):
    held = []
    monkeypatch.setattr(record_source, "BLOCK_BYTES", 100)
    monkeypatch.setattr(appender_module, "HELD_BYTES_MAX", 2_000)
    cluster.batch_records = 1_000  # a batch is sent when the command waits
    taken = Appender._hold

    def hold(self, delivery, size):
        taken(self, delivery, size)
        held.append(self._held_bytes)

    monkeypatch.setattr(Appender, "_hold", hold)
    lines = [b"%d" % number * 450 for number in range(10)]
    assert run("produce", topic, *flags, input=b"\n".join(lines)).exit_code == 0
    assert values(cluster) == lines
    assert 4 * 450 <= max(held) <= 2_000


def test_a_block_without_the_end_of_a_line_leaves_the_counts_as_they_are(cluster, topic):
    client = cluster.connect(["127.0.0.1:9101"])
    with appender_module.appender(client, topic, Settings()) as sink:
        sink.append([b"a", b"b"])
        sink.append([])
        sink.append([b"c", b"d"])  # c ends the batch of a and b
        assert (sink.sent, sink.acknowledged) == (4, 3)
        sink.append([])
        sink.append([b"e"])
        sink.append([])
        sink.flush()
        assert (sink.sent, sink.acknowledged) == (5, 5)


def test_ctrl_c_tells_what_was_acknowledged(run, topic, monkeypatch):
    def interrupted(source, pause):
        yield produce_module.Lines(1, [b"a", b"b"])
        raise KeyboardInterrupt

    monkeypatch.setattr(produce_module, "read_lines", interrupted)
    result = run("produce", topic, input=b"")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "2 records acknowledged" in result.stderr


def test_a_missing_topic_is_noticed_before_anything_is_read(run):
    assert run("produce", "nowhere", input=b"a\n").exit_code == ExitCode.NOT_FOUND


@pytest.mark.parametrize("word, ours", [("all", "commit"), ("1", "leader"), ("0", "none")])
def test_ack_levels_of_other_systems_are_translated(run, topic, word, ours):
    result = run("produce", topic, "--acks", word, input=b"")
    assert result.exit_code == ExitCode.USAGE
    assert f"is called {ours!r} here" in " ".join(result.stderr.split())


def test_a_line_longer_than_a_batch_is_refused_by_number(run, topic, monkeypatch):
    monkeypatch.setattr(record_source, "LINE_BYTES_MAX", 10)
    monkeypatch.setattr(record_source, "BLOCK_BYTES", 8)
    result = run("produce", topic, input=b"a\nb\n" + b"x" * 30)
    assert result.exit_code == ExitCode.FAILED
    assert "line 3 is longer than 10 bytes" in result.stderr


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_the_input_is_cut(monkeypatch, block):
    monkeypatch.setattr(record_source, "BLOCK_BYTES", block)
    data = b"one\n\ntwo\nthree and more\nlast"
    found = [(lines.first + place, value) for lines in read_lines(io.BytesIO(data), lambda: None)
             for place, value in enumerate(lines.values)]
    assert found == list(enumerate(data.split(b"\n"), 1))


def test_slow_input_is_sent_before_more_of_it_is_awaited():
    reader, writer = os.pipe()
    paused, sent = threading.Event(), []

    def feed():
        os.write(writer, b"first\n")
        assert paused.wait(5), "nobody noticed the pause"
        os.write(writer, b"second\n")
        os.close(writer)

    def pause():
        if sent:
            paused.set()

    feeder = threading.Thread(target=feed)
    feeder.start()
    with open(reader, "rb") as source:
        for lines in read_lines(source, pause):
            sent += lines.values
    feeder.join()
    assert sent == [b"first", b"second"]


LONG = 40_000
HOWS = [(), ("--key-separator", ":"), ("--partition", "0")]


@pytest.mark.parametrize("flags", HOWS, ids=["many", "keys", "one partition"])
@pytest.mark.parametrize("block", [64, 1 << 20], ids=["in blocks", "at once"])
def test_what_stands_before_a_line_that_is_too_long_is_appended(run, cluster, topic, monkeypatch,
                                                                flags, block):
    monkeypatch.setattr(record_source, "BLOCK_BYTES", block)
    cluster.record_bytes_max = LONG - 1
    before = b"".join(b"k:%d\n" % n for n in range(50))
    result = run("produce", topic, "--json", *flags,
                 input=before + b"k:" + b"x" * LONG + b"\nk:after\n")
    assert result.exit_code == ExitCode.FAILED
    assert json.loads(result.stdout) == {"topic": "t", "records": 50, "acknowledged": 50,
                                         "ambiguous": 0, "refused": 0}
    assert len(values(cluster)) == 50
    assert f"line 51 ({LONG if flags[:1] == HOWS[1][:1] else LONG + 2:,} bytes) was refused: " \
           f"record of" in result.stderr


@pytest.mark.parametrize("flags", HOWS, ids=["many", "keys", "one partition"])
def test_long_lines_that_fit_keep_their_place(run, cluster, topic, flags):
    lines = [b"k:a", b"k:" + b"x" * LONG, b"k:b", b"k:c", b"k:" + b"y" * LONG]
    assert run("produce", topic, *flags, input=b"\n".join(lines)).exit_code == 0
    cut = 2 if "--key-separator" in flags else 0
    assert values(cluster) == [line[cut:] for line in lines]


def test_lines_before_one_without_a_separator_are_appended(run, cluster, topic):
    result = run("produce", topic, "--key-separator", ":", input=b"a:1\nb:2\nc3\nd:4\n")
    assert cluster.topics["t"][0] == [(b"a", b"1"), (b"b", b"2")]
    assert "2 records acknowledged" in result.stderr
    assert "line 3 has no ':'" in result.stderr


def test_lines_before_one_that_is_longer_than_any_are_appended(run, cluster, topic, monkeypatch):
    monkeypatch.setattr(record_source, "LINE_BYTES_MAX", 10)
    result = run("produce", topic, input=b"a\nb\n" + b"x" * 30)
    assert values(cluster) == [b"a", b"b"]
    assert "line 3 is longer than 10 bytes" in result.stderr
    assert "2 records acknowledged" in result.stderr


@pytest.mark.parametrize("flags", HOWS, ids=["many", "keys", "one partition"])
def test_a_partition_that_is_gone_ends_it_and_says_at_which_line(run, cluster, topic, flags):
    cluster.refused[b"3" if "--key-separator" in flags else b"k:3"] = wire.UnknownPartition(
        "topic 't' has partitions 0..0, not 1")
    result = run("produce", topic, "--json", *flags,
                 input=b"".join(b"k:%d\n" % n for n in range(6)))
    assert result.exit_code == ExitCode.NOT_FOUND
    assert json.loads(result.stdout)["acknowledged"] == 3
    assert "line 4 (" in result.stderr


def test_a_refusal_in_the_middle_of_a_list_names_its_line_and_counts_those_before(
        run, cluster, topic):
    cluster.refused[b"d"] = wire.ProducerFenced("producer 6 epoch 0 was fenced by epoch 1")
    result = run("produce", topic, "--json", input=b"a\nb\nc\nd\ne\n")
    assert result.exit_code == ExitCode.FAILED
    told = json.loads(result.stdout)
    assert (told["records"], told["acknowledged"], told["ambiguous"]) == (3, 3, 0)
    assert "line 4 (1 byte) was refused: " in result.stderr and "was fenced" in result.stderr


def test_counts_are_said_when_ctrl_c_comes_twice(run, cluster, topic, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Appender, "flush", interrupted)
    monkeypatch.setattr(Appender, "flush_within", interrupted)
    result = run("produce", topic, input=b"a\nb\nc\n")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "3 records acknowledged" in result.stderr


def test_a_separator_may_be_any_bytes(run, cluster, topic):
    run("produce", topic, "--key-separator", "\udcff", input=b"k\xffv\n")
    assert cluster.topics["t"][0] == [(b"k", b"v")]


# -- consume --------------------------------------------------------------------------------------

@pytest.fixture
def seven(cluster) -> str:
    cluster.topics["t"] = [[(b"k%d" % n, b"v%d" % n) for n in range(7)]]
    return "t"


def test_raw_values_one_per_line(run, seven):
    result = run("consume", seven)
    assert result.exit_code == 0
    assert result.stdout_bytes == b"v0\nv1\nv2\nv3\nv4\nv5\nv6\n"


@pytest.mark.parametrize("flags, expected", [
    (["--count", "4"], [0, 1, 2, 3]), (["--from", "5"], [5, 6]),
    (["--from", "2", "--count", "1"], [2]), (["--from", "7"], []),
])
def test_from_and_count_cut_within_batches(run, seven, flags, expected):
    assert run("consume", seven, *flags).stdout.split() == [f"v{n}" for n in expected]


def test_json_lines_have_a_stable_shape(run, seven):
    rows = [json.loads(line) for line in run("consume", seven, "--json").stdout.splitlines()]
    assert rows[6] == {"partition": 0, "offset": 6, "timestamp": 1_700_000_000_000, "key": "k6",
                       "value": "v6"}
    assert run("consume", seven, "--format", "json").stdout.splitlines()[6] == json.dumps(rows[6])


def test_bytes_that_are_no_text_survive_json(run, cluster):
    cluster.topics["t"] = [[(None, b"\xff\x00")]]
    (row,) = [json.loads(line) for line in run("consume", "t", "--json").stdout.splitlines()]
    assert row["key"] is None
    assert row["value_base64"] == "/wA="
    assert "value" not in row


def test_header_names_that_are_no_text_survive_json(run, cluster):
    cluster.topics["t"] = [[(None, b"a"), (None, b"b"), (None, b"c")]]
    cluster.headers[b"b"] = (("caf\udce9", b"1"), ("\x1b[31m", b"\xff"), ("", None))
    rows = [json.loads(line) for line in run("consume", "t", "--json").stdout.splitlines()]
    assert [row["value"] for row in rows] == ["a", "b", "c"]
    assert rows[1]["headers"] == [
        {"name_base64": "Y2Fm6Q==", "value": "1"}, {"name": "\x1b[31m", "value_base64": "/w=="},
        {"name": "", "value": None}]


def test_follow_writes_what_there_is_and_ends_with_ctrl_c(run, seven):
    result = run("consume", seven, "--follow")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert result.stdout.split() == [f"v{n}" for n in range(7)]


def test_from_latest_follows_unless_told_otherwise(run, seven):
    assert run("consume", seven, "--from", "latest").exit_code == ExitCode.INTERRUPTED
    assert run("consume", seven, "--from", "latest", "--until-end").exit_code == 0


def test_one_partition_of_many(run, cluster):
    cluster.topics["t"] = [[(None, b"a")], [(None, b"b")]]
    assert run("consume", "t", "--partition", "1").stdout == "b\n"
    assert run("consume", "t", "--partition", "2").exit_code == ExitCode.NOT_FOUND


def test_an_offset_needs_a_partition_when_there_are_several(run, cluster):
    cluster.topics["t"] = [[], []]
    result = run("consume", "t", "--from", "5")
    assert result.exit_code == ExitCode.USAGE
    assert "needs --partition" in result.stderr


@pytest.mark.parametrize("flags", [["--from", "2"], ["--from", "0=2"], ["-p", "0", "-o", "2:5"]])
def test_a_start_that_was_deleted_is_refused_with_the_offsets_that_are_gone(
        run, seven, cluster, flags):
    cluster.log_starts[seven, 0] = 4
    result = run("consume", seven, *flags)
    assert result.exit_code == ExitCode.FAILED and result.stdout == ""
    assert "offsets 2 to 3 of t/0 were deleted; the log begins at 4, and 7 is the next." in (
        result.stderr)
    assert "multiraft consume t --partition 0 --from 4" in result.stderr
    assert "multiraft consume t --from earliest" in result.stderr


@pytest.mark.parametrize("flags", [["--from", "2"], ["--from", "0=2"], ["-p", "0", "-o", "2:9"]])
@pytest.mark.parametrize(("reset", "read", "where"), [
    ("earliest", "456", "there"), ("latest", "", "at the end")])
def test_a_reset_passes_over_deleted_records_and_names_them(
        run, seven, cluster, flags, reset, read, where):
    cluster.log_starts[seven, 0] = 4
    result = run("consume", seven, *flags, "--offset-reset", reset, "--quiet", "-f", "%o")
    assert result.exit_code == 0 and result.stdout == read
    assert result.stderr == ("Passed over: offsets 2 to 3 of t/0 were deleted; the log begins at "
                             f"4. Reading continues {where}.\n")


def test_each_gap_is_named_once(run, seven, monkeypatch):
    class Overtaken(FakeConsumer):
        """A consumer that is overtaken by two deletions, one after the other."""

        @property
        def gaps(self):
            taken = self.position(0)
            return tuple(Gap("t", 0, at, at + 1) for at in (1, 3) if taken > at)

    monkeypatch.setattr(fakes, "FakeConsumer", Overtaken)
    result = run("consume", seven, "--offset-reset", "earliest", "--follow")
    assert result.stderr.count("offset 1 of t/0 was deleted") == 1
    assert result.stderr.count("offset 3 of t/0 was deleted") == 1


def test_without_a_reset_no_gap_is_passed_over(run, seven, cluster):
    assert run("consume", seven).exit_code == 0
    assert "offset_reset" not in cluster.consumed
    assert run("consume", seven, "--offset-reset", "none").exit_code == 0
    assert "offset_reset" not in cluster.consumed


def test_an_offset_beyond_the_end_is_refused_with_every_reset(run, seven):
    result = run("consume", seven, "--from", "8", "--offset-reset", "latest")
    assert result.exit_code == ExitCode.FAILED and "offset 8 is out of range" in result.stderr


def test_a_deletion_that_overtakes_a_reader_ends_it_as_incomplete(run, seven, monkeypatch):
    def overtaken(_self, *_args, **_settings):
        raise wire.OffsetOutOfRange(
            "offsets 2 to 3 of t/0 were deleted; the log begins at 4, and its end is 7",
            start_offset=4, end_offset=7).about("t", 0, 2)

    monkeypatch.setattr(FakeClient, "consume", overtaken)
    result = run("consume", seven)
    assert result.exit_code == ExitCode.INCOMPLETE
    assert "offsets 2 to 3 of t/0 were deleted; the log begins at 4" in result.stderr
    assert "multiraft consume t --partition 0 --from 4" in result.stderr


@pytest.mark.parametrize("flags", [[], ["--follow"]])
def test_an_offset_beyond_the_end_is_out_of_range(run, seven, flags):
    result = run("consume", seven, "--from", "8", *flags)
    assert result.exit_code == ExitCode.FAILED
    assert "offset 8 is out of range" in result.stderr
    assert "partition 0 of t has the offsets 0 to 6, and 7 is the next." in result.stderr


@pytest.mark.parametrize("text, ms", [
    ("@1700000000000", 1_700_000_000_000), ("2023-11-14T22:13:20Z", 1_700_000_000_000),
    ("2023-11-14T23:13:20+01:00", 1_700_000_000_000), ("2023-11-14 22:13:20.5", 1_700_000_000_500),
    ("2023-11-14", 1_699_920_000_000), ("1969-01-01", 0), ("-10s", 1_700_000_090_000),
    ("-1s500ms", 1_700_000_098_500),
    ("-1m40s", 1_700_000_000_000), ("-999999999w", 0),
])
def test_a_time_is_written_in_many_ways(run, seven, cluster, monkeypatch, text, ms):
    monkeypatch.setattr(options, "_now_ms", lambda: 1_700_000_100_000)
    assert run("consume", seven, "--from", text).exit_code == 0
    assert cluster.consumed["start"] == Timestamp(ms)


@pytest.mark.parametrize("text", ["2023-11-14T25:00:00Z", "2023-13-01", "@", "@-5", "-", "-5",
                                  "-1y", "-h", "1h", "tomorrow", "2023-11-14T22:13:20+99:00"])
def test_what_is_no_time_is_explained(run, seven, text):
    result = run("consume", seven, f"--from={text}")
    assert result.exit_code == ExitCode.USAGE
    assert "2026-11-20T10:00:00Z" in result.stderr


def test_a_rack_means_the_nearest_replica(run, seven, cluster):
    run("consume", seven, "--rack", "r2")
    assert (cluster.consumed["prefer"], cluster.consumed["rack"]) == ("nearest", "r2")
    run("consume", seven)
    assert "prefer" not in cluster.consumed


@pytest.mark.parametrize("word", ["-1", "five"])
def test_a_bad_offset_is_explained(run, seven, word):
    result = run("consume", seven, f"--from={word}")
    assert result.exit_code == ExitCode.USAGE
    assert "earliest" in result.stderr
    assert ("are --offset -1." in " ".join(result.stderr.split())) is (word == "-1")


@pytest.mark.parametrize("word, end", ENDS.items())
def test_both_options_know_the_same_words_for_the_ends_of_a_partition(run, cluster, seven, word,
                                                                      end):
    expected = 7 if end == "earliest" else 0
    for option in ("--from", "--offset"):
        done = run("consume", seven, option, word, "--until-end")
        assert (done.exit_code, len(done.stdout.split())) == (0, expected), option
    assert run("consume", seven, "--from", word.upper(), "--until-end").exit_code == 0


def test_what_was_produced_is_consumed_unchanged(run, cluster, topic):
    data = b"".join(b"line %d \xc3\xa9\n" % n for n in range(100))
    run("produce", topic, input=data)
    assert run("consume", topic).stdout_bytes == data


class Screen(io.BytesIO):
    """Standard output as a terminal; `shown` is what has left the buffer."""

    def __init__(self):
        self.shown = io.BytesIO()
        self.buffer = io.BufferedWriter(self.shown)

    def isatty(self) -> bool:
        return True


def test_records_are_shown_on_a_terminal_while_another_partition_is_awaited(cluster, seven,
                                                                            monkeypatch):
    client, screen, seen = cluster.connect(["127.0.0.1:9101"]), Screen(), []
    monkeypatch.setattr(sys, "stdout", screen)

    def batches():
        for batch in client.consume(seven):
            yield batch
            seen.append(screen.shown.getvalue())

    encode = consume_module._encoder("raw", False)
    writing = consume_module._Writing(encode, None, {}, consume_module._opened)
    assert writing.run(batches(), None, flush_each=False, quiet=True)
    assert seen == [b"v0\nv1\nv2\n", b"v0\nv1\nv2\nv3\nv4\nv5\n",
                    b"v0\nv1\nv2\nv3\nv4\nv5\nv6\n"]
