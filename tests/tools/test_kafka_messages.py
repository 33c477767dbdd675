"""The generator of Kafka's messages: its files are those of the tree, and it refuses what it does
not know."""

from __future__ import annotations

import json

import pytest

from tests.tidy import tree
from tools.kafka_messages import __main__ as generator
from tools.kafka_messages import cython_source, python_source, schema_files


def test_the_generated_files_are_those_of_the_tree():
    wanted = generator.generated()
    assert generator.existing() == set(wanted)
    tree.complain("files that differ; run `make kafka-messages`:", [
        path for path, text in wanted.items() if (tree.ROOT / path).read_text() != text])


def test_the_licence_of_kafka_is_beside_its_files():
    for name, text in (("LICENSE", "Apache License"), ("NOTICE", "Apache Kafka")):
        assert text in (schema_files.SCHEMAS / name).read_text()


def message(**changes) -> str:
    """Return the text of a small schema file with a comment."""
    return "// a comment\n" + json.dumps({
        "apiKey": 3, "type": "request", "name": "ARequest", "validVersions": "0-4",
        "flexibleVersions": "2+", "fields": [
            {"name": "TopicId", "type": "uuid", "versions": "3+"},
            {"name": "Gone", "type": "string", "versions": "none"}], **changes})


def test_versions_are_cut_to_those_of_the_message():
    found = schema_files.parse(message())
    (field,) = found.structs[0].fields
    assert (found.versions, found.flexible) == ((0, 4), (2, 4))
    assert (field.name, field.versions, field.default) == ("topic_id", (3, 4), bytes(16))


@pytest.mark.parametrize("text,within,expected", [
    ("3", (0, 9), (3, 3)), ("0-7", (2, 9), (2, 7)), ("4+", (0, 9), (4, 9)),
    ("none", (0, 9), schema_files.NEVER), ("0-1", (2, 9), schema_files.NEVER)])
def test_ranges_of_versions(text, within, expected):
    assert schema_files.parse_versions(text, within) == expected


@pytest.mark.parametrize("changes", [
    {"unknown": 1}, {"fields": [{"name": "A", "type": "float128", "versions": "0+"}]},
    {"fields": [{"name": "A", "type": "int8", "versions": "0+", "unknown": 1}]},
    {"fields": [{"name": "A", "type": "bytes", "versions": "0+", "default": "x"}]},
    {"fields": [{"name": "A", "type": "int8", "versions": "0+", "default": "null"}]}])
def test_a_schema_that_it_does_not_know_is_refused(changes):
    with pytest.raises(AssertionError):
        schema_files.parse(message(**changes))


def test_the_compiled_codec_refuses_types_that_it_has_no_functions_for():
    field = {"name": "A", "type": "[]string", "versions": "0+"}
    with pytest.raises(AssertionError, match="an array of string"):
        list(cython_source.Source(schema_files.parse(message(fields=[field]))).lines())


def test_long_lines_are_broken_inside_of_brackets():
    line = "    value = function(" + ", ".join(f"argument_{number}" for number in range(20)) + ")"
    pieces = list(cython_source.fitted(line))
    assert len(pieces) > 1 and all(len(piece) <= python_source.COLUMNS for piece in pieces)
    assert "".join(piece.strip() for piece in pieces).replace(",", ", ").split() == \
        line.strip().replace("(", "(", 1).split()
