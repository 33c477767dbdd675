"""Formats of records: what is written and read, and where a mistake stands."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from admin_cli.records.format_input import InputFormat, Row
from admin_cli.records.format_output import record_writer
from admin_cli.records.format_text import FORMAT_CHARACTERS_MAX, FormatError

BATCH = SimpleNamespace(topic="flüge", partition=3, high_watermark=9,
                        header=SimpleNamespace(leader_epoch=2, producer_id=7, producer_epoch=1))
RECORD = SimpleNamespace(offset=5, timestamp_ms=1_700_000_000_123, key=b"k\xff", value=b"v v",
                         headers=(("a", b"1"), ("b", None)))
NULLS = SimpleNamespace(offset=6, timestamp_ms=-1, key=None, value=None, headers=())


def written(text: str, *records) -> bytes:
    return record_writer(text)(BATCH, records or [RECORD])


@pytest.mark.parametrize("text, expected", [
    (r"%t %p %o %k %v\n", "flüge 3 5 k".encode() + b"\xff v v\n"),
    ("%T %K %V %H", b"6 2 3 2"),
    ("%e %x %y %] %i", b"2 7 1 9 1"),
    (r"\t\r\\\x00%%%{%}", b"\t\r\\\x00%{}"),
    ("%k{hex}", b"6bff"), ("%k{base64}", b"a/8="), ("%k{base64raw}", b"a/8"),
    ("%h", b"a=1,b="), ("%h{ %k=%v{hex};}", b" a=31; b=;"), ("%h{%K%V}", b"1110"),
    ("%d", b"1700000000123"), ("%d{strftime[%F %T]}", b"2023-11-14 22:13:20"),
    ("%d{strftime### [%F] ###}", b" [2023-11-14] "), ("%d{strftime{%Y}}", b"2023"),
    ("%o{hex64}%o{hex4}", b"00000000000000055"), ("%o{big32}", b"\0\0\0\5"),
    ("%o{little16}", b"\5\0"), ("%o{byte}%o{big8}", b"\5\5"), ("%o{bool}", b"true"),
    ("%o{ascii}", b"5"), ("é", "é".encode()), ("", b""),
])
def test_a_record_is_written_as_the_format_says(text, expected):
    assert written(text) == expected


def test_nulls_are_empty_and_a_time_that_no_calendar_has_is_a_number():
    assert written("[%k|%v|%K|%V|%h|%H]", NULLS) == b"[||0|0||0]"
    late = SimpleNamespace(**{**vars(NULLS), "timestamp_ms": 1 << 62})
    assert written("%d{strftime[%F]}", late) == b"%d" % (1 << 62)


def test_a_number_is_cut_to_its_width():
    large = SimpleNamespace(**{**vars(RECORD), "offset": 256})
    assert written("%o{byte}%o{hex8}%o{big16}", large) == b"\x0000\x01\x00"


def test_records_are_counted_over_batches():
    write = record_writer(r"%i,%i\n")
    assert write(BATCH, [RECORD, RECORD]) + write(BATCH, [RECORD]) == b"1,1\n2,2\n3,3\n"


@pytest.mark.parametrize("text, column, words", [
    ("%q", 1, "%q is no verb; there are %t"), ("ab%", 3, "a verb is missing"),
    (r"abc\q", 4, r"\q is no escape"), ("\\", 1, "is no escape"), (r"\x1", 1, "two hexadecimal"),
    ("%k %v{hex", 6, "the brace is never closed"), ("%v{foo}", 4, "no modifier 'foo'; there are "
                                                                  "hex, base64"),
    ("%o{foo}", 4, "ascii, hex64"), ("%d{foo}", 4, "and strftime[%F %T]"),
    ("%d{strftime}", 12, "in brackets"), ("%d{strftime[%F}", 12, "in brackets"),
    ("%d{strftime[}", 12, "in brackets"), ("%d{strftime[\udcff%F]}", 12, "is not UTF-8"),
    ("%h{%p}", 4, "%p, the partition, cannot be used"),
    (r"%s\n", 1, "the value is %v"), ("x%[", 2, "multiraft topic offsets"),
    ("%é", 1, "is no verb"), ("%\n", 1, "is no verb"),
    ("a" * (FORMAT_CHARACTERS_MAX + 1), 1, "longer than"),
])
def test_a_bad_format_for_output_is_a_sentence_with_its_column(text, column, words):
    with pytest.raises(FormatError) as caught:
        record_writer(text)
    assert caught.value.column == column
    assert str(caught.value).startswith(f"column {column}: ") and words in str(caught.value)
    assert str(caught.value).endswith(".")


# -- input ----------------------------------------------------------------------------------------

def rows(text: str, data: bytes) -> list[Row]:
    """Read all records of some data; the last call knows that there are no more."""
    form, at, found = InputFormat(text), 0, []
    while at < len(data):
        row, at = form.read(data, at, ended=True)
        found.append(row)
    return found


@pytest.mark.parametrize("text, data, expected", [
    (r"%k %v\n", b"a b c\nd e\n", [Row(b"a", b"b c"), Row(b"d", b"e")]),
    (r"%v\n", b"a\n\nb", [Row(None, b"a"), Row(None, b""), Row(None, b"b")]),
    (r"%k\n", b"a\n", [Row(b"a", b"")]),
    ("%K{3}%k%V{big16}%v", b"abc\0\2hi", [Row(b"abc", b"hi")]),
    (r"%V:%v\n", b"3:a\nb\n1:x\n", [Row(None, b"a\nb"), Row(None, b"x")]),
    (r"%p %d %v\n", b"4 99 hi\n", [Row(None, b"hi", 4, 99)]),
    (r"%H %h{%k=%v }%v\n", b"2 a=1 b= x\n0 y\n",
     [Row(None, b"x", headers=(("a", b"1"), ("b", b""))), Row(None, b"y")]),
    (r"%h{%k=%v;}%v\n", b"a=1;x\n", [Row(None, b"x", headers=(("a", b"1"),))]),
    (r"%H{2}%h{%K{1}%k%V{1}%v}%v\n", b"a1b2x\n",
     [Row(None, b"x", headers=(("a", b"1"), ("b", b"2")))]),
    ("%v", b"all\nof it\n", [Row(None, b"all\nof it\n")]),
    ("%v %p", b"ab 1", [Row(None, b"ab", 1)]), ("%v %p{ascii}", b"ab 1", [Row(None, b"ab", 1)]),
    ("%v %d{}", b"ab 1", [Row(None, b"ab", None, 1)]),
    (r"%k{hex}:%v{base64}\n", b"6162:/wA=\n:/wA\n", [Row(b"ab", b"\xff\0"), Row(b"", b"\xff\0")]),
    (r"%V{hex8}%v %p{bool}\n", b"02hi true\n", [Row(None, b"hi", 1)]),
    (r"%V{little32}%v", b"\2\0\0\0hi", [Row(None, b"hi")]),
    (r"%%%{%k%} %v\n", b"%{a} b\n", [Row(b"a", b"b")]),
])
def test_records_are_read_as_the_format_says(text, data, expected):
    assert rows(text, data) == expected


@pytest.mark.parametrize("text, data", [(r"%k %v\n", b"a b\nc d\n"), ("%V{big16}%v", b"\0\2hi"),
                                        (r"%H %h{%k=%v }%p %v\n", b"2 a=1 b=2 10 x\n"),
                                        (r"%V:%v\r\n", b"12:abcdefghijkl\r\n")])
def test_a_record_is_awaited_until_all_of_it_is_there(text, data):
    form = InputFormat(text)
    row, after = form.read(data, 0, ended=False)
    for size in range(after):
        assert form.read(data[:size], 0, ended=False) is None, size
    assert form.read(b"rest" + data, 4, ended=False) == (row, 4 + after)


@pytest.mark.parametrize("text, data, words", [
    (r"%k %v\n", b"nothing\n", "the input ends within it"),
    ("%V{big16}%v", b"\0\5hi", "the input ends within it"),
    (r"%V{3}%v\n", b"abcd\n", r"'\n' is missing before 'd\n'"),
    (r"%v{hex}\n", b"zz\n", "'zz' is not hex"), (r"%v{base64}\n", b"?\n", "is not base64"),
    (r"%p %v\n", b"x y\n", "a number is missing before 'x y"),
    (r"%p %v\n", b"1" * 30 + b" y\n", "more than 19 digits"),
    (r"%p{bool} %v\n", b"maybe so\n", "true or false is missing"),
    (r"%p{hex8} %v\n", b"zz y\n", "'zz' is not hex8"),
    ("%V{0}%v", b"abc", "takes no bytes"),
    (r"%h{%k=%v }%v\n", b"\xff=1 x\n", "is not UTF-8"),
    (r"%H %h{%k=%v }%v\n", b"70000 a=1 x\n", "70000 headers, the limit is"),
])
def test_data_that_do_not_match_are_explained(text, data, words):
    with pytest.raises(ValueError, match=".") as caught:
        rows(text, data)
    assert words in str(caught.value)


@pytest.mark.parametrize("text, column, words", [
    ("data.txt", 1, "a file is named with --file"), (r"%k%v\n", 1, "nothing tells where %k ends"),
    (r"%v%k\n", 1, "as in %V{4}%v"), (r"%v %K\n", 4, "%K must stand before the %k"),
    (r"%v %v\n", 4, "the format has %v twice"), (r"%t %v\n", 1, "%t, the topic, cannot be used"),
    (r"%o %v\n", 1, "%o, the offset, cannot be used"), (r"%h %v\n", 1, "needs the form"),
    (r"%h{%v }%v\n", 1, "%h has no %k"), ("%h{%k=%v}%v", 7, "nothing tells where %v ends"),
    ("%K{99999999999999999999}%k", 4, "more than 19 digits"), ("%K{foo}%k", 4, "and a number"),
    ("%v{json}", 4, "no modifier 'json'"), ("", 1, "neither %v nor %k"),
])
def test_a_bad_format_for_input_is_a_sentence_with_its_column(text, column, words):
    with pytest.raises(FormatError) as caught:
        InputFormat(text)
    assert caught.value.column == column
    assert words in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize("text", [r"%K{big32}%V{big32}%H{big32}%k%v",
                                  r"%K %V %k%v\n"])
def test_what_is_written_is_read_back(text):
    text = text.replace("%H{big32}", "")
    data = written(text, RECORD, NULLS)
    assert [(row.key, row.value) for row in rows(text, data)] == [(b"k\xff", b"v v"), (b"", b"")]
