"""Cython source of the hot messages: classes with C fields, and functions that read and write them.

Contract.  The functions do what the generic codec does with the schemas of ``python_source``, in
the same order, so that both report the same problem first.  Functions that read note a problem
(``codec_parts/reader.pxi``); functions that write raise.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.kafka_messages.python_source import COLUMNS, ZERO_UUID, is_hot, literal
from tools.kafka_messages.schema_files import (
    KAFKA_VERSION,
    NEVER,
    Field,
    Message,
    Struct,
    Versions,
    snake,
)

#: Type -> C type of its field.  ``reader.pxi`` and ``writer.pxi`` have functions for these alone,
#: because the hot messages have no others, and the compiler warns of functions without a use.
C_TYPES = {"bool": "bint", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
           "int64": "int64_t", "string": "str", "uuid": "bytes", "records": "object"}
NUMBERS = ("bool", "int8", "int16", "int32", "int64")
#: Types whose arrays they have functions for.
ELEMENTS = ("int32",)
ALWAYS, NOT_ONCE = "True", "False"


def cython_name(message: Message, struct: str) -> str:
    """Return the name of a struct's class in the extension."""
    return message.name if struct == message.name else f"{message.name}_{struct}"


def condition(message: Message, versions: Versions) -> str:
    """Return the test for a range of versions, of those that the message has."""
    low, high = versions
    if versions == NEVER:
        return NOT_ONCE
    if low == message.versions[0]:
        return ALWAYS if high == message.versions[1] else f"version <= {high}"
    if high == message.versions[1]:
        return f"version >= {low}"
    return f"{low} <= version <= {high}"


def _guarded(test: str, body: list[str], otherwise: list[str] | None = None) -> Iterator[str]:
    """Yield lines under a test, without it if it always holds."""
    if test == ALWAYS:
        yield from body
    elif test != NOT_ONCE:
        yield f"if {test}:"
        yield from (f"    {line}" for line in body)
        if otherwise:
            yield "else:"
            yield from (f"    {line}" for line in otherwise)
    else:
        yield from otherwise or ()


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return (f"    {line}" if line else "" for line in lines)


def _call(begin: str, function: str, arguments: list[str]) -> list[str]:
    """Return the line of a call."""
    return [f"{begin}{function}({', '.join(arguments)})"]


def fitted(line: str) -> Iterator[str]:
    """Yield a line of code in pieces that are not too long, broken inside of brackets."""
    inner = " " * (len(line) - len(line.lstrip()) + 8)
    open_before = 0
    while len(line) > COLUMNS:
        depth, places = open_before, []
        for place, character in enumerate(line[:COLUMNS]):
            depth += (character in "([") - (character in ")]")
            if depth and (character in "([" or line[place:place + 2] == ", "):
                places.append(place + 1)
        assert places, line
        piece = line[:places[-1]]
        open_before += sum(map(piece.count, "([")) - sum(map(piece.count, ")]"))
        yield piece
        line = inner + line[places[-1]:].lstrip()
    yield line


class Source:
    """The source of one message."""

    def __init__(self, message: Message):
        self.message = message
        self.structs = {struct.name: struct for struct in message.structs}

    def name(self, struct: str) -> str:
        """Return the name of a struct's class."""
        return cython_name(self.message, struct)

    def test(self, versions: Versions) -> str:
        """Return the test for a range of versions."""
        return condition(self.message, versions)

    def lines(self) -> Iterator[str]:
        """Yield all lines of the message."""
        for struct in self.message.structs:
            yield from ("", "", *self._class(struct))
        for struct in self.message.structs:
            yield from ("", "", *self._reading(struct))
        for struct in self.message.structs:
            if self._is_tag(struct):
                yield from ("", "", *self._comparison(struct))
        for struct in self.message.structs:
            yield from ("", "", *self._writing(struct))

    def _is_tag(self, struct: Struct) -> bool:
        """True if the struct alone, no array of it, is compared with its default."""
        return any(field.type == struct.name and not field.array
                   for each in self.message.structs for field in each.fields)

    # ---- classes ---------------------------------------------------------------------------------

    def _c_type(self, field: Field) -> str:
        if field.array:
            return "list"
        if field.is_struct:
            return self.name(field.type)
        return C_TYPES[field.type]

    def _class(self, struct: Struct) -> Iterator[str]:
        about = f"Element of ``{struct.about}``."
        if struct.name == self.message.name:
            about = f"{struct.name} of Kafka {KAFKA_VERSION}."
        yield "@cython.final"
        yield f"cdef class {self.name(struct.name)}(_Struct):"
        yield f'    """{about}"""'
        yield ""
        for field in struct.fields:
            yield f"    cdef public {self._c_type(field)} {field.name}"
        names = [f'"{field.name}"' for field in struct.fields]
        yield f"    FIELDS = ({', '.join([*names, ''][:max(2, len(names))])})"
        if struct.name == self.message.name:
            yield from (f"    {inner.name} = {self.name(inner.name)}"
                        for inner in self.message.structs[:-1])
        yield ""
        yield from self._constructor(struct)

    def _constructor(self, struct: Struct) -> Iterator[str]:
        yield "    def __init__("
        yield "        self,"
        yield "        *,"
        for field in struct.fields:
            made = field.default == () and field.default is not None
            type_ = "object" if made else self._c_type(field)
            yield f"        {type_} {field.name}={'_UNSET' if made else self._default(field)},"
        yield "    ):"
        for field in struct.fields:
            if field.default == () and field.default is not None:
                yield f"        if {field.name} is _UNSET:"
                yield f"            {field.name} = {self._default(field)}"
            yield f"        self.{field.name} = {field.name}"

    def _default(self, field: Field) -> str:
        """Return the default as an expression that makes a new one."""
        if field.default == () and field.default is not None:
            return "[]" if field.array else f"{self.name(field.type)}()"
        return "_ZERO_UUID" if field.default == ZERO_UUID else literal(field.default)

    # ---- reading ---------------------------------------------------------------------------------

    def _compact(self, field: Field) -> str:
        return self.test(self.message.flexible) if field.flexible else NOT_ONCE

    def _get(self, struct: Struct, field: Field) -> list[str]:
        """Return the lines that read one field."""
        what = f'b"{struct.name}.{field.name}"'
        begin = f"to.{field.name} = "
        nullable, compact = self.test(field.nullable), self._compact(field)
        if field.array:
            return _call(begin, "get_array", ["r", *self._element("read", "element", field),
                                              "version", nullable, compact, what])
        if field.is_struct:
            assert field.nullable == NEVER, f"{struct.name}.{field.name}: a struct that may be null"
            name = self.name(field.type)
            return [f"{begin}<{name}>(read_{name}(r, version, {what}))"]
        if field.type in NUMBERS or field.type == "uuid":
            return _call(begin, f"get_{field.type}", ["r", what])
        return _call(begin, f"get_{self._sized(field)}", ["r", nullable, compact, what])

    def _sized(self, field: Field) -> str:
        if field.type != "records":
            return field.type
        return "record_buffer" if self.message.kind == "request" else "record_buffers"

    def _element(self, of_struct: str, of_primitive: str, field: Field) -> list[str]:
        """Return the function for the elements of an array."""
        if field.is_struct:
            return [f"{of_struct}_{self.name(field.type)}"]
        assert field.type in ELEMENTS, f"an array of {field.type}"
        return [f"{of_primitive}_{field.type}"]

    def _reading(self, struct: Struct) -> Iterator[str]:
        name = self.name(struct.name)
        yield f"cdef object read_{name}(Reader *r, int version, const char *what):"
        yield f"    cdef {name} to"
        tagged = [field for field in struct.fields if field.tagged != NEVER]
        if tagged:
            yield "    cdef int64_t begin"
        flexible = self.test(self.message.flexible)
        if flexible != NOT_ONCE:
            yield "    cdef int64_t end, tag, count"
        yield f"    to = {name}.__new__({name})"
        for field in struct.fields:
            default = [f"to.{field.name} = {self._default(field)}"]
            if field.tagged != NEVER:
                assert field.tagged == field.versions, f"{field.name}: tagged in some versions"
                yield from _indented(default)
            else:
                yield from _indented(_guarded(self.test(field.versions), self._get(struct, field),
                                              default))
        yield from _indented(_guarded(flexible, list(self._get_tags(struct, tagged))))
        yield "    return to"

    def _get_tags(self, struct: Struct, tagged: list[Field]) -> Iterator[str]:
        what = f'b"{struct.name}.tags"'
        yield f"count = get_tag_count(r, {what})"
        yield "while count > 0 and r.problem == 0:"
        yield "    count -= 1"
        yield f"    tag = get_tag(r, &end, {what})"
        branch = "if"
        if tagged:
            yield "    begin = r.at"
        for field in tagged:
            test = self.test(field.versions)
            more = "" if test == ALWAYS or field.versions == self.message.flexible else \
                f" and {test}"
            yield f"    {branch} tag == {field.tag}{more}:"
            yield from (f"        {line}" for line in self._get(struct, field))
            yield f'        end_tag(r, begin, end, b"{struct.name}.{field.name}")'
            branch = "elif"
        if tagged:
            yield "    elif tag >= 0:"
        else:
            yield "    if tag >= 0:"
        yield "        r.at = end"

    # ---- writing ---------------------------------------------------------------------------------

    def _comparison(self, struct: Struct) -> Iterator[str]:
        name = self.name(struct.name)
        yield f"cdef bint is_default_{name}({name} value) except -1:"
        yield "    if value is None:"
        yield "        return False"
        tests = []
        for field in struct.fields:
            assert not field.array and not field.is_struct, f"{struct.name}.{field.name}"
            tests.append(f"value.{field.name} == {self._default(field)}")
        yield "    return (" + "\n            and ".join(tests) + ")"

    def _differs(self, field: Field) -> str:
        """Return the test that a field has another value than its default."""
        value = f"v.{field.name}"
        if field.default is None:
            return f"{value} is not None"
        if field.array:
            return f"{value} is None or PyList_GET_SIZE({value})"
        if field.is_struct:
            return f"not is_default_{self.name(field.type)}({value})"
        if field.type == "bool":
            return f"not {value}" if field.default else value
        return f"{value} != {self._default(field)}"

    def _put(self, struct: Struct, field: Field) -> list[str]:
        """Return the lines that append one field."""
        what, value = f'"{struct.name}.{field.name}"', f"v.{field.name}"
        nullable, compact = self.test(field.nullable), self._compact(field)
        if field.array:
            return _call("", "put_array",
                         ["w", value, *self._element("write", "put_element", field),
                          "version", nullable, compact, what])
        if field.is_struct:
            return _call("", f"write_{self.name(field.type)}", ["w", value, "version", what])
        if field.type in NUMBERS:
            return [f"put_{field.type}(w, {value})"]
        if field.type == "uuid":
            return [f"put_uuid(w, {value}, {what})"]
        return _call("", f"put_{self._sized(field)}", ["w", value, nullable, compact, what])

    def _writing(self, struct: Struct) -> Iterator[str]:
        name = self.name(struct.name)
        yield f"cdef int write_{name}(Writer *w, object given, int version, str what) except -1:"
        yield f"    cdef {name} v"
        tagged = sorted((field for field in struct.fields if field.tagged != NEVER),
                        key=lambda field: field.tag)
        if tagged:
            yield "    cdef Py_ssize_t begin"
            yield f"    cdef bint {', '.join(f'has_{field.tag}' for field in tagged)}"
        yield "    if given is None:"
        yield "        raise null_field(what)"
        yield f"    v = <{name}?>given"
        for field in struct.fields:
            if not field.ignorable and self.test(field.versions) != ALWAYS:
                low, high = field.versions
                absent = [f"version < {low}"] * (low > self.message.versions[0])
                absent += [f"version > {high}"] * (high < self.message.versions[1])
                yield f"    if ({' or '.join(absent)}) and ({self._differs(field)}):"
                yield f'        raise missing_field("{struct.name}.{field.name}", version)'
        for field in struct.fields:
            if field.tagged == NEVER:
                yield from _indented(_guarded(self.test(field.versions), self._put(struct, field)))
        yield from _indented(_guarded(self.test(self.message.flexible),
                                      list(self._put_tags(struct, tagged))))
        yield "    return 0"

    def _put_tags(self, struct: Struct, tagged: list[Field]) -> Iterator[str]:
        if not tagged:
            yield "put_varint(w, 0)"
            return
        for field in tagged:
            test = self.test(field.versions)
            more = "" if test == ALWAYS else f"{test} and "
            yield f"has_{field.tag} = {more}({self._differs(field)})"
        yield f"put_varint(w, <uint64_t>({' + '.join(f'has_{each.tag}' for each in tagged)}))"
        for field in tagged:
            yield f"if has_{field.tag}:"
            yield f"    begin = begin_tag(w, {field.tag})"
            yield from (f"    {line}" for line in self._put(struct, field))
            yield "    close_tag(w, begin)"


def _head(subject: str) -> list[str]:
    return [f"# {subject}.", "#",
            f"# Generated from the schema files of Kafka {KAFKA_VERSION} by tools/kafka_messages; "
            f"`make kafka-messages`.", "# Included by _codec.pyx."]


def _table(hot: list[Message]) -> Iterator[str]:
    """Yield the lines of the tables by which messages are found."""
    yield from _head("Numbers of the hot messages, and their functions")
    count = len(hot)
    yield from ("", f"cdef ReadElement[{count}] _READ", f"cdef WriteElement[{count}] _WRITE")
    for place, message in enumerate(hot):
        yield f"_READ[{place}] = <ReadElement>read_{message.name}"
        yield f"_WRITE[{place}] = write_{message.name}"
    yield ""
    yield "#: Name of a message -> its number."
    yield "NUMBERS = {"
    yield from (f'    "{message.name}": {place},' for place, message in enumerate(hot))
    yield "}"


def parts(messages: list[Message]) -> dict[str, str]:
    """Return the name and the text of each part of the extension."""
    hot = [message for message in messages if is_hot(message)]
    found: dict[str, list[str]] = {}
    for message in hot:
        found[f"{snake(message.name)}.pxi"] = [*_head(message.name), *Source(message).lines()]
    found["numbers.pxi"] = list(_table(hot))
    return {name: "\n".join(piece for line in lines for piece in fitted(line)) + "\n"
            for name, lines in found.items()}
