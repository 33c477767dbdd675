"""Lines of JSON: what `consume --json` writes is what `produce --from-json` reads."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from admin_cli.records.format_input import Row
from admin_cli.records.record_json import json_line, parse_line
from admin_cli.values.text import printable

BATCH = SimpleNamespace(topic="t", partition=3)


@pytest.mark.parametrize("key, value, headers", [
    (b"k", b"v", ()), (None, None, ()), (b"", b"", ()), (b"\xff", b"\xff\0", ()),
    ("é\n\u2028".encode(), b'"\\\x1b', (("a", b"1"), ("a", None), ("", b"\xff"))),
])
def test_a_written_line_is_read_back(key, value, headers):
    record = SimpleNamespace(offset=17, timestamp_ms=1_700_000_000_000, key=key, value=value,
                             headers=headers)
    for with_topic in (False, True):
        line = json_line(BATCH, record, with_topic)
        assert "\n" not in line
        assert parse_line(line.encode()) == Row(key, value, 3, 1_700_000_000_000, headers)
        assert ("topic" in json.loads(line)) is with_topic


@pytest.mark.parametrize("text", ["\x7f", "\x9b31m", "a\u202eb", "\u2066", "\x1b[2J"])
def test_a_written_line_cannot_change_the_terminal(text):
    record = SimpleNamespace(offset=0, timestamp_ms=0, key=text.encode(), value=text.encode(),
                             headers=((text, text.encode()),))
    line = json_line(BATCH, record)
    assert line == printable(line)
    assert parse_line(line.encode()) == Row(text.encode(), text.encode(), 3, 0, record.headers)


@pytest.mark.parametrize("line, row", [
    ('{"value": "v"}', Row(None, b"v")), ('{"value": null, "key": "k"}', Row(b"k", None)),
    ('{"value": "v", "partition": null, "headers": null}', Row(None, b"v")),
    ('{"topic": "x", "offset": 9, "value": "v"}', Row(None, b"v")),
])
def test_a_line_that_is_typed_may_be_short(line, row):
    assert parse_line(line.encode()) == row


@pytest.mark.parametrize("line, words", [
    ("hello", "it is not JSON at column 1"), ("", "it is not JSON"), ("\x00", "it is not JSON"),
    ('"text"', "it is not a JSON object"), ("[1]", "it is not a JSON object"),
    ('{"val": "x"}', "unknown key 'val'; there are headers, key"), ("{}", "it has no value"),
    ('{"value": 5}', "its value is no text"), ('{"value": {}}', "its value is no text"),
    ('{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
    ('{"value_base64": "?"}', "its value_base64 is not base64"),
    ('{"value": "\\ud800"}', "half of a surrogate pair; write value_base64"),
    ('{"value": "v", "partition": -1}', "its partition is not a whole number"),
    ('{"value": "v", "partition": true}', "its partition is not a whole number"),
    ('{"value": "v", "timestamp": 1e3}', "its timestamp is not a whole number"),
    ('{"value": "v", "timestamp": 9223372036854775808}', "its timestamp is not a whole number"),
    ('{"value": "v", "headers": {}}', "its headers are no list"),
    ('{"value": "v", "headers": ["a"]}', "its headers are no list"),
    ('{"value": "v", "headers": [{"value": "a"}]}', "a header has no name"),
    ('{"value": "v", "headers": [{"name": "a", "x": 1}]}', "unknown key 'x' in a header"),
    ('{"value": "v", "headers": [{"name_base64": "/w=="}]}', "is not UTF-8"),
    ("[" * 100_000, "it is not JSON"),
])
def test_a_line_that_is_no_record_is_explained(line, words):
    with pytest.raises(ValueError, match=".") as caught:
        parse_line(line.encode())
    assert words in str(caught.value)


def test_bytes_that_are_not_utf_8_are_not_json():
    with pytest.raises(ValueError, match="it is not JSON"):
        parse_line(b'{"value": "\xff"}')
