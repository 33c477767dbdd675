"""Flags of produce and consume: keys, headers, formats, JSON, spans, and flags of other tools."""

from __future__ import annotations

import json
import re

import pytest

from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.records import readers, record_source
from admin_cli.records.foreign_flags import CONSUME_HINTS, PRODUCE_HINTS
from admin_cli.records.format_input import InputFormat
from admin_cli.records.format_output import record_writer
from admin_cli.records.produce import PROPERTY_HINTS
from multiraft.client.blocking import Record
from multiraft.wire import errors as wire


@pytest.fixture
def topic(cluster) -> str:
    cluster.topics["t"] = [[]]
    return "t"


@pytest.fixture
def seven(cluster) -> str:
    cluster.topics["t"] = [[(b"k%d" % n, b"v%d" % n) for n in range(7)]]
    return "t"


@pytest.fixture
def two(cluster) -> str:
    """A topic of two partitions, with 7 and 3 records."""
    cluster.topics["t"] = [[(None, b"a%d" % n) for n in range(7)],
                           [(None, b"b%d" % n) for n in range(3)]]
    return "t"


def in_one_line(text: str) -> str:
    return " ".join(text.split())


# -- produce --------------------------------------------------------------------------------------

@pytest.mark.parametrize("flags, data, expected", [
    (["-k", "UA"], b"a\nb\n", [Record("t", b"a", b"UA"), Record("t", b"b", b"UA")]),
    (["-H", "source=radar", "-H", "n:1=2"], b"a\n",
     [Record("t", b"a", headers=(("source", b"radar"), ("n", b"1=2")))]),
    (["-H", "Authorization:Bearer abc=", "-H", "at=10:30"], b"a\n",
     [Record("t", b"a", headers=(("Authorization", b"Bearer abc="), ("at", b"10:30")))]),
    (["-H", "source:radar"], b"a\n", [Record("t", b"a", headers=(("source", b"radar"),))]),
    (["-H", "empty="], b"a\n", [Record("t", b"a", headers=(("empty", b""),))]),
    (["-f", r"%k %v\n"], b"a b c\nd e", [Record("t", b"b c", b"a"), Record("t", b"e", b"d")]),
    (["--format", r"%p %d %v\n", "-k", "x"], b"0 5 b\n", [Record("t", b"b", b"x", 0, 5)]),
    (["-f", r"%h{%k=%v }%v\n", "-H", "all=1"], b"a=1 v\n",
     [Record("t", b"v", headers=(("a", b"1"), ("all", b"1")))]),
    (["-f", "%v"], b"a\nb\n", [Record("t", b"a\nb\n")]),
    (["--from-json"], b'{"value": "v", "key": null, "timestamp": 7}\n\n{"value_base64": "/w=="}\n',
     [Record("t", b"v", None, None, 7), Record("t", b"\xff")]),
    (["-f", "json"], b'{"value": "v"}', [Record("t", b"v")]),
    (["--from-json"], b'{"value": "v", "partition": 0}\n', [Record("t", b"v", None, 0)]),
    (["--from-json", "--repartition"], b'{"value": "v", "partition": 9}\n', [Record("t", b"v")]),
    (["--from-json", "-p", "0"], b'{"value": "v", "partition": 9}\n', [Record("t", b"v", None, 0)]),
    (["-Z"], b"\na\n", [Record("t", None), Record("t", b"a")]),
    (["--tombstone", "-K:"], b"k:\n", [Record("t", None, b"k")]),
    (["-K:"], b"k:v\n", [Record("t", b"v", b"k")]),
    (["-K", r"\t"], b"k\tv\n", [Record("t", b"v", b"k")]),
    (["-K", r"\x00%\\"], b"k\0%\\v\n", [Record("t", b"v", b"k")]),
    (["--property", "parse.key=true"], b"k\tv\n", [Record("t", b"v", b"k")]),
    (["--property", "parse.key=true", "--property", "key.separator=:"], b"k:v\n",
     [Record("t", b"v", b"k")]),
    (["--property", "key.separator=:"], b"k:v\n", [Record("t", b"k:v")]),
    (["-K:", "--property", "parse.key=true", "--property", "key.separator=;"], b"k;w:v\n",
     [Record("t", b"v", b"k;w")]),
])
def test_records_are_made_as_the_flags_say(run, cluster, topic, flags, data, expected):
    done = run("produce", topic, *flags, input=data)
    assert done.exit_code == 0, done.output
    assert [record._replace(headers=tuple(record.headers)) for record in cluster.appended] \
        == expected


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_a_format_reads_the_same_however_the_input_is_cut(run, cluster, topic, monkeypatch, block):
    monkeypatch.setattr(record_source, "BLOCK_BYTES", block)
    assert run("produce", topic, "-f", r"%V{3}%v;%k\n", input=b"abc;d\n\n\n\n;e\n").exit_code == 0
    assert cluster.topics["t"][0] == [(b"d", b"abc"), (b"e", b"\n\n\n")]


@pytest.mark.parametrize("flags, settings", [
    (["--timeout", "5s"], {"delivery_timeout_ms": 5_000}),
    (["--timeout", "2"], {"delivery_timeout_ms": 2_000}),
    (["--delivery-timeout", "1m30s"], {"delivery_timeout_ms": 90_000}),
    (["--batch-bytes", "1MiB"], {"batch_bytes": 1 << 20}),
    (["--max-message-bytes", "512KiB"], {"batch_bytes": 512 << 10}),
    (["-z", "zstd"], {"compression": "zstd"}), (["--compression-codec", "lz4"],
                                                {"compression": "lz4"}),
    (["--request-required-acks", "leader"], {"acks": "leader"}),
])
def test_settings_reach_the_producer(run, cluster, topic, flags, settings):
    assert run("produce", topic, *flags, input=b"a\n").exit_code == 0
    assert cluster.producer_options == {"acks": "commit", "compression": "none",
                                        "delivery_timeout_ms": 30_000, **settings}


@pytest.mark.parametrize("flags, words", [
    (["-f", "data.txt"], "column 1: the format has neither %v nor %k, so it reads nothing; a file "
                         "is named with --file."),
    (["-f", r"%k%v\n"], "column 1: nothing tells where %k ends"),
    (["-f", r"%k %s\n"], "column 4: %s cannot be used here; the value is %v."),
    (["-H", "nothing"], "'nothing' is not NAME=VALUE."),
    (["--from-json", "-f", r"%v\n"], "--from-json and --format exclude each other"),
    (["-K:", "-f", r"%v\n"], "a format names the key with %k"),
    (["-K", r"\q"], r"column 1: \q is no escape"),
    (["-K:", "--from-json"], "a format names the key with %k"),
    (["-K:", "-k", "x"], "--key and --key-separator exclude each other"),
    (["-k", "x", "-f", r"%k %v\n"], "--key is given, and the format has %k"),
    (["-p", "0", "--repartition"], "--partition and --repartition exclude each other"),
    (["--timeout", "soon"], "'soon' is not a duration like 30s"),
    (["--timeout", "0"], "is not a duration"), (["--timeout", "9w"], "above the limit of a day"),
    (["--batch-bytes", "9MiB"], "above the limit of 8 MiB"),
    (["--batch-bytes", "10"], "below 125"),
    (["--property", "parse.headers=true"], "There is no property parse.headers: "),
    (["--property", "x.y=1"], "'x.y=1' is no property that is known here"),
    (["-K:", "--property", "x.y=1"], "'x.y=1' is no property that is known here"),
    (["-K:", "--property", "ignore.error=true"], "There is no property ignore.error: "),
])
def test_flags_that_cannot_be_are_explained(run, topic, flags, words):
    done = run("produce", topic, *flags, input=b"a\n")
    assert done.exit_code == ExitCode.USAGE
    assert words in in_one_line(done.stderr)


@pytest.mark.parametrize("flags, data, words", [
    (["--from-json"], b'{"value": "a"}\n\n{"val": "b"}\n{"value": "c"}\n',
     "line 3 is no record: it has the unknown key 'val'"),
    (["-f", r"%k %v\n"], b"a b\nc\n", "record 2 does not fit the format: the input ends within it"),
    (["-f", r"%p %v\n"], b"0 a\nx b\n", "record 2 does not fit the format: a number is missing"),
])
def test_records_before_a_bad_one_are_appended(run, topic, flags, data, words):
    done = run("produce", topic, "--json", *flags, input=data)
    assert done.exit_code == ExitCode.FAILED
    assert json.loads(done.stdout)["acknowledged"] == 1
    assert words in done.stderr


def test_a_record_in_a_partition_that_does_not_exist_names_the_way_out(run, cluster, topic):
    cluster.refused[b"b"] = wire.UnknownPartition("topic 't' has partitions 0..0, not 9")
    done = run("produce", topic, "--from-json",
               input=b'\n{"value": "a"}\n{"value": "b", "partition": 9}\n')
    assert done.exit_code == ExitCode.NOT_FOUND
    assert "line 3 (1 byte) was refused: topic 't' has partitions 0..0, not 9" in done.stderr
    assert "--repartition" in done.stderr


@pytest.mark.parametrize("flags, data, words", [
    (["-f", r"%V{1}%v\n%k\n"], b"a\n1\nb\n2\n", "record 2 (1 byte) was refused: "),
    (["--from-json"], b'{"value": "a"}\n\n{"value": "b"}\n', "line 3 (1 byte) was refused: ")])
def test_a_refusal_counts_what_the_form_of_the_input_has(run, cluster, topic, flags, data, words):
    cluster.refused[b"b"] = wire.ProducerFenced("producer 6 epoch 0 was fenced by epoch 1")
    done = run("produce", topic, *flags, input=data)
    assert done.exit_code == ExitCode.FAILED
    unit = words.partition(" ")[0]
    assert words in done.stderr and f"The {unit}s before it were sent." in done.stderr


def test_a_text_that_is_longer_than_any_record_is_refused(run, topic, monkeypatch):
    monkeypatch.setattr(record_source, "TEXT_BYTES_MAX", 10)
    monkeypatch.setattr(record_source, "BLOCK_BYTES", 8)
    done = run("produce", topic, "-f", r"%k %v\n", input=b"a b\n" + b"x" * 30)
    assert done.exit_code == ExitCode.FAILED
    assert "record 2 is longer than 10 bytes" in done.stderr
    assert "1 record acknowledged" in done.stderr
    done = run("produce", topic, "--from-json", input=b'{"value": "xxxxxxxxxxxxxx"}')
    assert "line 1 is longer than 10 bytes" in done.stderr


# -- consume --------------------------------------------------------------------------------------

@pytest.mark.parametrize("flags, expected", [
    (["-o", "start"], range(7)), (["-o", "-2"], [5, 6]), (["-o", "+5"], [5, 6]),
    (["-o", "2:4"], [2, 3]), (["-o", ":2"], [0, 1]), (["-o", "5"], [5, 6]),
    (["-o", ":end"], range(7)), (["-o", "5:100"], [5, 6]), (["-o", "3:3"], []),
    (["-o", "-100"], range(7)), (["-o", "@-1h"], []), (["-o", "@1000000000"], range(7)),
    (["-o", "@:1000000000"], []),
    (["--offset", "earliest", "-n", "1"], [0]), (["--from", "0=5"], [5, 6]),
    (["--from-beginning"], range(7)), (["--max-messages", "2"], [0, 1]), (["-c", "1"], [0]),
    (["-e", "-q"], range(7)), (["--num", "3"], [0, 1, 2]),
])
def test_records_are_chosen_as_in_other_tools(run, seven, flags, expected):
    done = run("consume", seven, *flags)
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == [f"v{n}" for n in expected]


def test_the_last_records_of_each_partition(run, two, cluster):
    assert run("consume", two, "-o", "-2").stdout.split() == ["a5", "a6", "b1", "b2"]
    assert run("consume", two, "-o", "4:6").stdout.split() == ["a4", "a5"], "the other has 3"
    assert run("consume", two, "--from", "0=5,1=3").stdout.split() == ["a5", "a6"]
    assert run("consume", two, "--from", "0=6").stdout.split() == ["a6", "b0", "b1", "b2"]


@pytest.mark.parametrize("flags, starts", [
    (["--from", "0=1,3=2"], {0: 1, 3: 2}), (["-o", "-2"], dict.fromkeys(range(300), 1))])
@pytest.mark.parametrize("follow", [False, True])
def test_offsets_of_many_partitions_are_read_by_one_consumer(run, cluster, flags, starts, follow):
    cluster.topics["t"] = [[(None, b"%d" % n) for n in range(3)] for _ in range(300)]
    done = run("consume", "t", *flags, *(["--follow"] if follow else []))
    assert done.exit_code == (ExitCode.INTERRUPTED if follow else ExitCode.OK), done.stderr
    assert cluster.consumers == [("t", None, starts, not follow)]
    assert len(done.stdout.split()) == 900 - sum(starts.values())


@pytest.mark.parametrize("flags, code, words", [
    (["-o", "x"], ExitCode.USAGE, "'x' is not one of start, end, 10, -5"),
    (["-o", "5:2"], ExitCode.USAGE, "'5:2' ends before it begins"),
    (["-o", "-5", "--from", "latest"], ExitCode.USAGE, "--from and --offset exclude each other"),
    (["--from-beginning", "--from", "latest"], ExitCode.USAGE, "--from-beginning excludes"),
    (["--from", "0=1,0=2"], ExitCode.USAGE, "partition 0 is named twice"),
    (["--from", "0=1", "-p", "0"], ExitCode.USAGE, "for one topic, without --partition"),
    (["--from", "9=1"], ExitCode.NOT_FOUND, "has no partition 9"),
    (["--from", "0=99"], ExitCode.FAILED, "offset 99 is out of range"),
    (["-p", "0", "-o", "99:100"], ExitCode.FAILED, "offset 99 is out of range"),
    (["--from", "5"], ExitCode.USAGE, "--from 0=5,1=5"),
    (["-f", "t"], ExitCode.USAGE, "to follow a topic: --follow"),
    (["-f", "%q"], ExitCode.USAGE, "column 1: %q is no verb"),
    (["-f", "%v", "--json"], ExitCode.USAGE, "--json and --format exclude each other"),
    (["-f", "json", "--json"], ExitCode.OK, ""),
    (["-r", "-p", "0"], ExitCode.OK, ""),
])
def test_choices_that_cannot_be_are_explained(run, two, flags, code, words):
    done = run("consume", two, *flags)
    assert done.exit_code == code
    assert words in in_one_line(done.stderr)


def test_a_format_writes_keys_offsets_and_topics(run, two):
    done = run("consume", two, "-f", r"%t %p %o %k %v %H\n", "-n", "1")
    assert done.stdout == "t 0 0  a0 0\n"
    assert run("consume", two, "--format", "%V{big16}", "-p", "1").stdout_bytes == b"\0\2" * 3


def test_f_without_a_format_follows_as_tail_does(run, seven):
    done = run("consume", seven, "-f")
    assert done.exit_code == ExitCode.INTERRUPTED
    assert done.stdout.split() == [f"v{n}" for n in range(7)]


def test_a_reader_that_is_interrupted_names_the_offsets_to_continue_from(run, two, cluster):
    done = run("consume", two, "--follow")
    assert "Continue: multiraft consume t --from 0=7,1=3 --follow" in done.stderr
    assert done.stderr.splitlines()[-1] == "interrupted"
    again = run("consume", two, "--from", "0=7,1=3")
    assert (again.exit_code, again.stdout) == (0, "")
    done = run("consume", two, "--follow", "-p", "1", "-o", "1")
    assert "Continue: multiraft consume t --from 3 --partition 1 --follow" in done.stderr


def test_several_topics_are_read_and_named_in_json(run, cluster, seven):
    cluster.topics["u"] = [[(None, b"w")]]
    cluster.topics["__metrics"] = [[(None, b"m")]]
    assert sorted(run("consume", "t", "u", "-o", "-1").stdout.split()) == ["v6", "w"]
    rows = [json.loads(line) for line in run("consume", "u", "t", "u", "--json").stdout.split("\n")
            if line]
    assert [row["topic"] for row in rows].count("u") == 1, "a topic that is named twice"
    assert len(rows) == 8
    assert run("consume", "--regex", "^u$", "-f", r"%t:%v\n").stdout == "u:w\n"
    (row,) = run("consume", "-r", "^u$", "--json").stdout.splitlines()
    assert json.loads(row)["topic"] == "u"
    assert run("consume", "-r", ".", "-o", "-1").stdout.split() == ["v6", "w"]
    assert run("consume", "-r", "^__").stdout == "m\n"
    assert run("consume", "t", "nope").exit_code == ExitCode.NOT_FOUND


def test_one_topic_has_no_topic_in_json(run, seven):
    assert "topic" not in json.loads(run("consume", seven, "--json", "-n", "1").stdout)


@pytest.mark.parametrize("pattern, code, words", [
    ("(", ExitCode.USAGE, "'(' is no regular expression"),
    ("zzz", ExitCode.NOT_FOUND, "no topic has a name that 'zzz' matches")])
def test_a_pattern_that_matches_nothing_is_said(run, seven, pattern, code, words):
    done = run("consume", "--regex", pattern)
    assert done.exit_code == code
    assert words in in_one_line(done.stderr)


def test_many_topics_are_read_with_few_consumers_and_little_memory(run, cluster, monkeypatch):
    for number in range(100):
        cluster.topics[f"t{number:02}"] = [[(None, b"%d" % number)]] * 10
    done = run("consume", "-r", "t", "-q")
    assert len(done.stdout.split()) == 1_000
    share = readers.READ_AHEAD_BYTES_MAX // (readers.OPEN_MAX * 10)
    assert cluster.consumed["partition_bytes_max"] == share
    assert cluster.open_max <= readers.OPEN_MAX
    monkeypatch.setattr(readers, "FOLLOWED_MAX", 99)
    done = run("consume", "-r", "t", "--follow")
    assert done.exit_code == ExitCode.FAILED
    assert "100 consumers are needed to follow them, the limit is 99" in done.stderr


def test_the_timeout_reaches_the_consumer(run, cluster, seven):
    run("consume", seven, "--timeout", "5s")
    assert cluster.consumed["unavailable_ms"] == 5_000
    run("consume", seven)
    assert "unavailable_ms" not in cluster.consumed


# -- other tools ----------------------------------------------------------------------------------

@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_topic_may_be_named_as_kcat_and_kafka_do(run, cluster, seven, command):
    for flags in (["-t", "t"], ["--topic", "t"], ["--topic=t", "--bootstrap-server", "127.0.0.1:9"],
                  ["-tt"]):
        assert run(command, *flags, input=b"a\n").exit_code == 0
    done = run(command)
    assert done.exit_code == ExitCode.USAGE
    assert "Missing argument 'TOPIC" in done.stderr


@pytest.mark.parametrize("arguments, words", [
    (["consume", "t", "-t", "u"], "TOPIC is given twice: as an argument and with --topic"),
    (["produce", "t", "--topic", "u"], "TOPIC is given twice: as an argument and with --topic"),
    (["produce", "-t", "t", "-t", "u"], "--topic is given 2 times; records are appended to one "
                                        "topic"),
])
def test_no_topic_that_is_named_is_dropped(run, cluster, seven, arguments, words):
    cluster.topics["u"] = [[(None, b"w")]]
    done = run(*arguments, input=b"a\n")
    assert done.exit_code == ExitCode.USAGE
    assert words in in_one_line(done.stderr)
    assert not cluster.appended and not done.stdout


def test_several_topics_may_be_named_with_flags(run, cluster, seven):
    cluster.topics["u"] = [[(None, b"w")]]
    assert run("consume", "-t", "u", "-t", "t", "-n", "1", "-o", "-1").stdout == "w\n"


@pytest.mark.parametrize("name, hint", PROPERTY_HINTS.items())
def test_properties_of_kafka_are_answered_with_the_flag_of_this_command(run, topic, name, hint):
    done = run("produce", topic, "--property", f"{name}=x", input=b"")
    assert done.exit_code == ExitCode.USAGE
    assert f"There is no property {name}: {hint}." in in_one_line(done.stderr)


@pytest.mark.parametrize("hints, compiled", [
    (PRODUCE_HINTS, InputFormat), (PROPERTY_HINTS, InputFormat), (CONSUME_HINTS, record_writer)],
    ids=["produce", "properties", "consume"])
def test_formats_in_hints_can_be_used(hints, compiled):
    formats = {text for hint in hints.values() for text in re.findall("--format '(.*?)'", hint)}
    assert formats
    for text in formats:
        compiled(text)


@pytest.mark.parametrize("command, hints", [("produce", PRODUCE_HINTS), ("consume", CONSUME_HINTS)])
def test_flags_of_other_tools_are_answered_with_the_flag_of_this_one(run, seven, command, hints):
    own = {name for param in cli.get_command(None, command).params
           for name in (*param.opts, *param.secondary_opts)}
    assert not own & {*hints}, "it is a flag of its own: the hint is never shown"
    for flag, hint in hints.items():
        done = run(command, seven, flag, input=b"")
        assert done.exit_code == ExitCode.USAGE, flag
        assert f"There is no {flag}: {hint}." in in_one_line(done.stderr)
        for word in hint.split():
            if word.startswith("--"):
                assert word.strip(",.;:") in own, f"{flag}: {word}"


def test_an_unknown_flag_of_no_tool_is_answered_as_everywhere(run, seven):
    done = run("consume", seven, "--isolaton", "x")
    assert done.exit_code == ExitCode.USAGE
    assert "--isolation" in done.stderr


@pytest.mark.parametrize("words, line", [
    (("greetings", "hello"), "echo hello | multiraft produce greetings"),
    (("-k", "UA", "greetings", "hello", "world"),
     "echo 'hello world' | multiraft produce greetings")])
def test_records_on_the_command_line_are_answered_with_the_pipe(run, words, line):
    refused = run("produce", *words)
    assert refused.exit_code == ExitCode.USAGE
    assert "Records are read from standard input: " + line in refused.stderr
