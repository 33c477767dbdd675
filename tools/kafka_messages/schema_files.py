"""Kafka's schema files as values: messages, structs and fields with their versions.

Contract.  A schema file is JSON with lines of comments.  ``messages`` reads each file of
``schemas``; ranges of versions are cut to those of the message.  What the generators do not
support is refused here by name, so that a later version of Kafka cannot be misread.
"""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path
from typing import NamedTuple

#: Version of Kafka that the files in ``schemas`` are of.
KAFKA_VERSION = "4.4.0"
SCHEMAS = Path(__file__).parent / "schemas"
COMMENT = re.compile(r"(?m)^\s*//.*$")
INTEGERS = ("int8", "int16", "uint16", "int32", "int64")
#: Types of fields that are no structs.
PRIMITIVES = (*INTEGERS, "bool", "string", "bytes", "records", "uuid")
#: First and last version; NEVER = in no version.
Versions = tuple[int, int]
NEVER: Versions = (0, -1)
MESSAGE_KEYS = {"apiKey", "type", "listeners", "name", "validVersions", "flexibleVersions",
                "fields", "commonStructs", "latestVersionUnstable"}
FIELD_KEYS = {"name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default",
              "ignorable", "mapKey", "entityType", "about", "fields", "flexibleVersions",
              "zeroCopy"}


class Field(NamedTuple):
    """One field of a struct."""

    name: str  # in the program
    type: str  # one of PRIMITIVES, or the name of a struct
    array: bool
    versions: Versions
    nullable: Versions
    tag: int  # -1 = none
    tagged: Versions
    default: object  # None = null; of an array or a struct that is not null: ()
    ignorable: bool  # a version without the field may be sent, whatever its value
    flexible: bool  # False = in the form of versions that are not flexible

    @property
    def is_struct(self) -> bool:
        """True if the field, or each element of the array, is a struct."""
        return self.type not in PRIMITIVES


class Struct(NamedTuple):
    """A struct with its fields, in the order of the bytes."""

    name: str
    about: str
    fields: tuple[Field, ...]


class Message(NamedTuple):
    """A message: its own struct is the last one, each other one precedes those that hold it."""

    name: str
    kind: str  # request, response or header
    key: int  # -1 for a header
    versions: Versions
    flexible: Versions
    structs: tuple[Struct, ...]


def parse_versions(text: str, within: Versions) -> Versions:
    """Return the range of ``3``, ``0-7``, ``9+`` or ``none``, cut to ``within``."""
    if text == "none":
        return NEVER
    first, plus, _ = text.partition("+")
    low, dash, high = first.partition("-")
    last = within[1] if plus else int(high) if dash else int(low)
    found = (max(int(low), within[0]), min(last, within[1]))
    return found if found[0] <= found[1] else NEVER


def snake(name: str) -> str:
    """Return ``topic_id`` for ``TopicId``."""
    found = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    assert not keyword.iskeyword(found), found
    return found


def _default(given: object, type_: str, array: bool, nullable: Versions) -> object:
    if given == "null" or type_ == "records" and given is None:
        assert nullable != NEVER or type_ == "records", f"null as the default of {type_}"
        return None
    if array or type_ not in PRIMITIVES:
        assert given in (None, ""), f"default {given!r} of {type_}"
        return ()
    if type_ == "bool":
        return str(given).lower() == "true"
    if type_ in INTEGERS:
        return int(str(given or 0), 0)
    if type_ == "string":
        return given or ""
    assert given is None, f"default {given!r} of {type_}"
    return bytes(16) if type_ == "uuid" else b""


def _field(raw: dict, within: Versions) -> Field:
    unknown = set(raw) - FIELD_KEYS
    assert not unknown, f"{raw['name']}: attributes {unknown}"
    array = raw["type"].startswith("[]")
    type_ = raw["type"].removeprefix("[]")
    assert type_ in PRIMITIVES or type_[0].isupper(), f"{raw['name']}: type {type_}"
    versions, nullable, tagged = (parse_versions(raw.get(name, "none"), within) for name in (
        "versions", "nullableVersions", "taggedVersions"))
    # Tagged fields are hints that a receiver may skip, so one handler may always fill them in.
    ignorable = str(raw.get("ignorable", False)).lower() == "true" or tagged == versions
    return Field(
        snake(raw["name"]), type_, array, versions, nullable, raw.get("tag", -1), tagged,
        _default(raw.get("default"), type_, array, nullable), ignorable,
        raw.get("flexibleVersions") != "none")


def _structs(name: str, about: str, raw_fields: list[dict], within: Versions,
             into: dict[str, Struct]) -> None:
    """Add a struct to ``into``, behind those that its fields hold."""
    for raw in raw_fields:
        if "fields" in raw:
            _structs(raw["type"].removeprefix("[]"), f"{name}.{snake(raw['name'])}",
                     raw["fields"], within, into)
    assert name not in into, f"two structs {name}"
    fields = tuple(_field(raw, within) for raw in raw_fields)
    into[name] = Struct(name, about, tuple(each for each in fields if each.versions != NEVER))


def parse(text: str) -> Message:
    """Return the message of one schema file."""
    raw = json.loads(COMMENT.sub("", text))
    unknown = set(raw) - MESSAGE_KEYS
    assert not unknown, f"{raw['name']}: attributes {unknown}"
    within = parse_versions(raw["validVersions"], (0, 99))
    found: dict[str, Struct] = {}
    for common in raw.get("commonStructs", ()):
        _structs(common["name"], "", common["fields"], within, found)
    _structs(raw["name"], "", raw["fields"], within, found)
    return Message(raw["name"], raw["type"], raw.get("apiKey", -1), within,
                   parse_versions(raw["flexibleVersions"], within), tuple(found.values()))


def messages() -> list[Message]:
    """Return the messages of all schema files: by key, requests before responses."""
    found = [parse(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")]
    return sorted(found, key=lambda message: (message.key, message.name))
