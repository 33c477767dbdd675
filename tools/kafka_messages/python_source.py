"""Python source of the messages: classes, and the schemas that the generic codec works by."""

from __future__ import annotations

from collections.abc import Iterator

from tools.kafka_messages.schema_files import (
    KAFKA_VERSION,
    NEVER,
    Field,
    Message,
    Struct,
    Versions,
    snake,
)

COLUMNS = 100
ZERO_UUID = bytes(16)
#: APIs whose messages the compiled codec reads and writes.
HOT_APIS = ("Produce", "Fetch", "ListOffsets", "Metadata")
ANNOTATIONS = {"bool": "bool", "string": "str", "bytes": "bytes", "uuid": "bytes"}
KINDS = {"bool": "BOOL", "int8": "INT8", "int16": "INT16", "uint16": "UINT16", "int32": "INT32",
         "int64": "INT64", "uuid": "UUID", "string": "STRING", "bytes": "BYTES"}


def api_name(message: Message) -> str:
    """Return ``Fetch`` for the messages of Fetch."""
    return message.name.removesuffix("Request").removesuffix("Response")


def is_hot(message: Message) -> bool:
    """Return True if the compiled codec reads and writes the message."""
    return message.name == "RequestHeader" or api_name(message) in HOT_APIS \
        and message.kind != "header"


def module_of(message: Message) -> str:
    """Return the name of the module that has the message."""
    return "headers" if message.kind == "header" else snake(api_name(message))


def range_text(versions: Versions) -> str:
    """Return the words for a range of versions."""
    return f"version {versions[0]}" if versions[0] == versions[1] else \
        f"versions {versions[0]} to {versions[1]}"


def class_name(message: Message, struct: str) -> str:
    """Return the name of a struct's class from outside of the message's class."""
    return message.name if struct == message.name else f"{message.name}.{struct}"


def record_kind(message: Message) -> str:
    """Return the kind of fields with records: requests have one buffer, responses a list."""
    return "RECORD_BUFFER" if message.kind == "request" else "RECORD_BUFFERS"


def _annotation(message: Message, field: Field) -> str:
    if field.type == "records":
        found = "Buffer" if message.kind == "request" else "Sequence[Buffer]"
    elif field.is_struct:
        found = class_name(message, field.type)
    else:
        found = ANNOTATIONS.get(field.type, "int")
    if field.array:
        found = f"list[{found}]"
    may_be_null = field.nullable != NEVER or field.default is None
    return f"{found} | None" if may_be_null else found


def _initial(message: Message, field: Field) -> str:
    if field.default == () and field.default is not None:
        if field.array:
            return "field(default_factory=list)"
        return f"field(default_factory=lambda: {class_name(message, field.type)}())"
    return literal(field.default)


def literal(value: object) -> str:
    """Return a default as an expression."""
    if value == ZERO_UUID:
        return "ZERO_UUID"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _attribute(message: Message, field: Field, indent: str) -> Iterator[str]:
    text = f"{indent}{field.name}: {_annotation(message, field)} = {_initial(message, field)}"
    notes = [range_text(field.versions)] * (field.versions != message.versions)
    if field.tagged != NEVER:
        notes.append(f"tag {field.tag}")
    if field.nullable not in (NEVER, field.versions):
        notes.append(f"null in {range_text(field.nullable)}")
    comment = f"# {', '.join(notes)}"
    if not notes:
        yield from _broken(text, indent)
    elif len(text) + 2 + len(comment) <= COLUMNS:
        yield f"{text}  {comment}"
    else:
        yield from (f"{indent}{comment}", *_broken(text, indent))


def _broken(text: str, indent: str) -> Iterator[str]:
    """Yield an attribute in lines that are not too long."""
    if len(text) <= COLUMNS:
        yield text
        return
    before, call, after = text.partition(" = field(")
    if len(before + call) > COLUMNS:
        head, bracket, before = before.partition("list[")
        yield head + bracket
        before = f"{indent}    {before}"
    yield before + call
    yield f"{indent}    {after}"


def _class(message: Message, struct: Struct, prose: str, indent: str) -> Iterator[str]:
    yield f"{indent}@dataclass(slots=True, kw_only=True)"
    yield f"{indent}class {struct.name}:"
    yield f'{indent}    """{prose}"""'
    yield ""
    if struct.name == message.name:
        for inner in message.structs[:-1]:
            about = f"Element of ``{inner.about}``." if inner.about else \
                "Struct that several fields have."
            yield from _class(message, inner, about, f"{indent}    ")
            yield ""
    for field in struct.fields:
        yield from _attribute(message, field, f"{indent}    ")
    if not struct.fields:
        yield f"{indent}    pass"


def classes(message: Message) -> Iterator[str]:
    """Yield the lines of a message's class, with its structs inside."""
    flexible = "" if message.flexible == NEVER else f", flexible since {message.flexible[0]}"
    prose = f"{message.name} of Kafka {KAFKA_VERSION}, {range_text(message.versions)}{flexible}."
    yield from _class(message, message.structs[-1], prose, "")


def _wrapped(pieces: list[str], begin: str, end: str) -> Iterator[str]:
    """Yield pieces with commas between, in lines that are not too long."""
    line, inner = begin, " " * (len(begin) - len(begin.lstrip()) + 4)
    for place, piece in enumerate(pieces):
        piece += end if place == len(pieces) - 1 else ","
        if len(line) + 1 + len(piece) > COLUMNS:
            yield line
            line = inner + piece
        else:
            line += piece if line.endswith("(") else f" {piece}"
    yield line


def constant(message: Message, struct: str) -> str:
    """Return the name of a struct's schema in its module."""
    return f"_{snake(message.name)}__{snake(struct)}".upper()


def _field_schema(message: Message, field: Field) -> Iterator[str]:
    kind = "STRUCT" if field.is_struct else KINDS.get(field.type) or record_kind(message)
    pieces = [f'"{field.name}"', f"Kind.{kind}", str(field.versions), literal(field.default)]
    if field.array:
        pieces.append("array=True")
    if field.nullable != NEVER:
        pieces.append(f"nullable={field.nullable}")
    if field.tagged != NEVER:
        pieces += [f"tag={field.tag}", f"tagged={field.tagged}"]
    if field.ignorable:
        pieces.append("ignorable=True")
    if not field.flexible:
        pieces.append("flexible=False")
    if field.is_struct:
        pieces.append(f"struct={constant(message, field.type)}")
    yield from _wrapped(pieces, "    Field(", "),")


def schemas(message: Message) -> Iterator[str]:
    """Yield the lines of a message's schema."""
    for struct in message.structs:
        yield from _wrapped([f'"{struct.name}"', class_name(message, struct.name), "("],
                            f"{constant(message, struct.name)} = Struct(", "")
        for field in struct.fields:
            yield from _field_schema(message, field)
        yield "))"
    last = ["hot=True"] * is_hot(message)
    pieces = [str(message.key), str(message.versions), str(message.flexible),
              constant(message, message.name), *last]
    yield from _wrapped(pieces, f"{snake(message.name).upper()} = Message(", ")")


def _imports(text: str) -> Iterator[str]:
    yield "from __future__ import annotations"
    yield ""
    if "Sequence[" in text:
        yield "from collections.abc import Sequence"
    names = ["dataclass"] + ["field"] * ("field(" in text)
    yield f"from dataclasses import {', '.join(names)}"
    yield ""
    wanted = [name for name, mark in (("ZERO_UUID", "ZERO_UUID"), ("Buffer", "Buffer"),
                                      ("Field", "Field("), ("Kind", "Kind."),
                                      ("Message", " Message("), ("Struct", " Struct("))
              if mark in text]
    yield f"from multiraft.kafka.schema import {', '.join(wanted)}"


def module(messages: list[Message]) -> str:
    """Return the text of the module with the messages of one API, or with the headers."""
    first = messages[0]
    subject = "Headers of requests and responses" if first.kind == "header" else \
        f"Messages of {api_name(first)} (API key {first.key})"
    body: list[str] = []
    for message in messages:
        body += ["", "", *classes(message)]
    body += ["", ""]
    for message in messages:
        body += schemas(message)
    text = "\n".join(body)
    lines = [f'"""{subject}.', "", f"Generated from the schema files of Kafka {KAFKA_VERSION} by "
             f"tools/kafka_messages; `make kafka-messages`.", '"""', "", *_imports(text)]
    return "\n".join(lines) + "\n" + text + "\n"


def table(messages: list[Message]) -> str:
    """Return the text of the module with the messages of all APIs."""
    modules = sorted({module_of(message) for message in messages if message.kind != "header"})
    lines = ['"""Schemas of the requests and responses of each API, by its key.', "",
             f"Generated from the schema files of Kafka {KAFKA_VERSION} by tools/kafka_messages; "
             f"`make kafka-messages`.", '"""', "", "from __future__ import annotations", "",
             "from multiraft.kafka.messages import ("]
    lines += [*(f"    {name}," for name in modules), ")",
              "from multiraft.kafka.schema import Message", ""]
    for kind in ("request", "response"):
        lines += [f"#: Key of an API -> its {kind}.",
                  f"{kind.upper()}S: dict[int, Message] = {{"]
        lines += [f"    {each.key}: {module_of(each)}.{snake(each.name).upper()},"
                  for each in messages if each.kind == kind]
        lines.append("}")
    return "\n".join(lines) + "\n"
