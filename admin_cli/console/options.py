"""Flags that many commands share, and their names in other systems.

Contract.  `--servers` and `--json` mean the same everywhere.  A word of Kafka, rpk or nats is
accepted where it means the same, and otherwise answered with the word that is used here.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from admin_cli import servers
from admin_cli.development import dev_choice
from admin_cli.failures import NotFound, reason
from admin_cli.session import Session
from admin_cli.values import quantities
from admin_cli.values.numbers import COUNT_MAX, DAY_S, PARTITION_MAX, Real, Whole, shown
from admin_cli.values.spans import ENDS, Span, parse_span
from admin_cli.values.text import printable
from admin_cli.values.times import FORMS, At, parse_duration, parse_time
from multiraft.codec import layout
from multiraft.codec.layout import STAGED_SINKS_MAX, STAGED_TRANSACTIONS_MAX
from placement import throttle

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Names of --servers in other systems: accepted, not advertised.
SERVERS_ALIASES = ("--server", "--bootstrap-server", "--bootstrap-servers", "--broker",
                     "--brokers", "--broker-list", "--seed-brokers", "--endpoints")

#: Names of ack levels in other systems -> the name here.
ACKS_ALIASES = {"all": "commit", "-1": "commit", "quorum": "commit", "1": "leader",
                  "0": "none"}
ACKS = ("commit", "leader", "none")
COMPRESSIONS = ("none", "gzip", "lz4", "zstd", "snappy")

Command = Callable[..., object]

#: Time for completion, in seconds: the user waits at a prompt, and the command needs time to start.
COMPLETION_S = 0.5


#: Rates above this are typing errors: no node sends, reads or writes a tebibyte a second.
RATE_MAX = throttle.THROTTLE_MAX
#: And sizes above this, of an exbibyte.
SIZE_MAX = 1 << 60


class Bytes(click.ParamType):
    """``64GiB``: a size, above 0."""

    name = "size"
    what = "so many bytes"
    example = "64GiB, 500MiB"
    most, most_text = SIZE_MAX, "1 EiB"

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        """Return the number of bytes that ``value`` names, for click; anything else, 0 and values
        above ``most`` are usage errors."""
        if isinstance(value, int):
            return value
        try:
            found = quantities.parse_size(str(value))
        except ValueError:
            found = 0
        if not found:
            self.fail(f"{shown(str(value))} is not {self.what}; write {self.example} or a number "
                      f"of bytes.", param, ctx)
        if found > self.most:
            self.fail(f"{value!r} is above the limit of {self.most_text}.", param, ctx)
        return found


class BytesPerSecond(Bytes):
    """``64MiB``: a rate, above 0."""

    what = "so many bytes per second"
    example = "64MiB, 500KiB"
    most, most_text = RATE_MAX, "1 TiB per second"


class BatchBytes(Bytes):
    """``1MiB``: the size of a batch."""

    example = "1MiB, 512KiB"
    least = layout.BATCH_HEADER_BYTES + 64  # as ``ProducerSettings``
    most, most_text = layout.BATCH_BYTES_MAX, "8 MiB, the most that a node takes in one batch"

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        found = super().convert(value, param, ctx)
        if found < self.least:
            self.fail(f"{value!r} is below {self.least}, the least for a batch.", param, ctx)
        return found


class Duration(click.ParamType):
    """``30s``, ``1m30s``, ``500ms``, or seconds without a unit, as milliseconds above 0."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        found = parse_duration(f"{text}s" if text.isascii() and text.isdecimal() else text)
        if not found:
            self.fail(f"{shown(text)} is not a duration like 30s, 1m30s or 500ms.", param, ctx)
        if found > 1_000 * DAY_S:
            self.fail(f"{shown(text)} is above the limit of a day.", param, ctx)
        return found


class Seconds(Real):
    """A number of seconds, or a duration like ``1m30s``, as seconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> float:
        """Return the seconds that ``value`` names, for click; anything else is a usage error."""
        found = parse_duration(value) if isinstance(value, str) else None
        return super().convert(value if found is None else found / 1_000, param, ctx)


def _remember_servers(context: click.Context, _parameter: click.Parameter,
                      value: str | None) -> None:
    if value is not None:
        context.obj.servers_option = value


#: Flag -> its meaning, and its names in rpk, nats and curl.
TLS_FLAGS = {
    "--tls-ca": ("Trust certificates of this CA.", ("--tls-truststore", "--tlsca", "--cacert")),
    "--tls-cert": ("Present this certificate.", ("--tlscert", "--cert")),
    "--tls-key": ("Private key of the certificate.", ("--tlskey",)),
    "--tls-server-name": ("Name in the nodes' certificates. Default: the host.", ()),
}


def _remember_tls(context: click.Context, parameter: click.Parameter, value: str | bool | None,
                  ) -> None:
    if value is not None:
        context.obj.tls_options[parameter.name.removesuffix("_aliases")] = value


class ConnectionOption(click.Option):
    """An option of the connection, which help shows behind the command's own options."""


class _TlsOption(ConnectionOption):
    """An option that only `multiraft help tls` shows."""

    def get_help_record(self, ctx: click.Context) -> None:
        """Return None: the command's help leaves the option out."""


def _tls_options(command: Command) -> Command:
    """Add the ``--tls...`` flags, which are stored in the session."""
    for flag, (text, aliases) in reversed(TLS_FLAGS.items()):
        name = flag.removeprefix("--").replace("-", "_")
        metavar = "NAME" if flag == "--tls-server-name" else "FILE"
        command = click.option(flag, name, metavar=metavar, expose_value=False, is_eager=True,
                               callback=_remember_tls, help=text, cls=_TlsOption)(command)
        if aliases:
            command = click.option(*aliases, f"{name}_aliases", hidden=True, is_eager=True,
                                   expose_value=False, callback=_remember_tls,
                                   cls=ConnectionOption)(command)
    return click.option("--tls", is_flag=True, default=None, expose_value=False, is_eager=True,
                        callback=_remember_tls, cls=ConnectionOption,
                        help="Use TLS. With it go --tls-ca, --tls-cert, --tls-key and "
                             "--tls-server-name: see `multiraft help tls`.")(command)


def servers_option(command: Command) -> Command:
    """Add ``--servers`` and the TLS flags to ``command``. Their values are stored in the session
    and not passed to the command."""
    command = _tls_options(command)
    said = click.option("--servers", metavar="HOST:PORT,...", expose_value=False,
                        callback=_remember_servers, is_eager=True, cls=ConnectionOption,
                        help=f"Client addresses of the cluster. Default: ${servers.VARIABLE}, "
                             "else the local development cluster.")
    hidden = click.option(*SERVERS_ALIASES, "servers_aliases", hidden=True, cls=ConnectionOption,
                          expose_value=False, callback=_remember_servers, is_eager=True)
    return said(hidden(command))


def connection_flags(session: Session) -> list[str]:
    """Return the flags of the connection that were given, in front of the command or behind it, to
    be typed again."""
    words = [] if session.servers_option is None else ["--servers", session.servers_option]
    for name, value in session.tls_options.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if isinstance(value, bool) else [flag, value]
    return words


json_option = click.option("--json", "as_json", is_flag=True,
                           help="Print JSON; its keys are stable.")
wide_option = click.option("--wide", is_flag=True,
                           help="Show all columns, however narrow the terminal is.")


class Directory(click.ParamType):
    """A development cluster's directory, as an absolute path."""

    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        try:
            path = path.expanduser().absolute()
            if not stat.S_ISDIR(os.stat(path).st_mode):
                self.fail(f"{value!r} is not a directory.", param, ctx)
        except FileNotFoundError:
            pass  # `dev up` creates it; other commands report that there is no cluster
        except (OSError, RuntimeError) as error:  # RuntimeError: the home of an unknown user
            why = reason(error) if isinstance(error, OSError) else str(error)
            self.fail(f"{value!r} cannot be used as a directory: {why}.", param, ctx)
        return path


def existing_directory(context: click.Context, _parameter: click.Parameter,
                       value: Path | None) -> Path:
    """Return the value of ``--dir``, or the cluster that commands find by default. Raises
    ``NotFound`` if there is none."""
    if value is not None:
        return value
    chosen = dev_choice.find(context.obj.environ)
    if chosen.directory is None:
        raise NotFound("there is no local development cluster.",
                       "Start one with `multiraft dev up`, or name its directory with --dir.")
    if chosen.passed_over is not None and not context.resilient_parsing:
        click.echo(printable(f"Note: the cluster in {chosen.passed_over} is stopped; this is the "
                             f"one in {chosen.directory}."), err=True)
    return chosen.directory


dir_option = click.option("--dir", "directory", type=Directory(), callback=existing_directory,
                          metavar="D", help="The cluster's directory. Default: ./dev-cluster; "
                                            "if that is stopped, the running one that was "
                                            "started last.")


class Word(click.Choice):
    """One of a few words; a word of another system is answered with the word here."""

    def __init__(self, words: tuple[str, ...], aliases: Mapping[str, str] | None = None):
        super().__init__(words)
        self._aliases = aliases or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        ours = self._aliases.get(str(value).lower())
        if ours is not None:
            self.fail(f"{value!r} is called {ours!r} here.", param, ctx)
        return super().convert(value, param, ctx)


class Numbers(click.ParamType):
    """A transaction of a sink, as ``(sink, number)``."""

    name = "transaction"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d{1,7})/(\d{1,9})", value, re.ASCII)
        numbers = (int(found[1]), int(found[2])) if found else (-1, -1)
        if not (0 < numbers[0] <= STAGED_SINKS_MAX and 0 < numbers[1] <= STAGED_TRANSACTIONS_MAX):
            self.fail(f"{shown(value)} is not SINK/NUMBER, two numbers from 1 to "
                      f"{STAGED_SINKS_MAX} and {STAGED_TRANSACTIONS_MAX}.", param, ctx)
        return numbers


class Time(click.ParamType):
    """A point in time, as ``At``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> At:
        at = value if isinstance(value, At) else parse_time(value, _now_ms())
        if at is None:
            self.fail(f"{shown(value)} is not a time like {FORMS}.", param, ctx)
        return at


_LAST_RECORDS = re.compile("-[0-9]{1,18}")
_PARTITION_OFFSETS = re.compile(r"[0-9]{1,20}=[0-9]{1,20}(,[0-9]{1,20}=[0-9]{1,20})*")


class Start(click.ParamType):
    """``earliest``, ``latest``, an offset, a time, or an offset for each of some partitions."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> str | int | At | dict[int, int]:
        if isinstance(value, (int, At, dict)):
            return value
        if value.lower() in ENDS:
            return ENDS[value.lower()]
        if value.isascii() and value.isdecimal():
            return Whole(0, COUNT_MAX).convert(value, param, ctx)
        if _PARTITION_OFFSETS.fullmatch(value):
            return self._offsets(value, param, ctx)
        at = parse_time(value, _now_ms())
        if at is not None:
            return at
        hint = (f" The last records of each partition are --offset {value}."
                if _LAST_RECORDS.fullmatch(value) else "")
        self.fail(f"{shown(value)} is not earliest, latest, an offset from 0, "
                  f"PARTITION=OFFSET,..., or a time like {FORMS}.{hint}", param, ctx)

    def _offsets(self, value: str, param: click.Parameter | None,
                 ctx: click.Context | None) -> dict[int, int]:
        """Return partition -> offset.  A partition that is named twice is a usage error."""
        found: dict[int, int] = {}
        for pair in value.split(","):
            partition, _, offset = pair.partition("=")
            number = Whole(0, PARTITION_MAX).convert(partition, param, ctx)
            if number in found:
                self.fail(f"partition {number} is named twice.", param, ctx)
            found[number] = Whole(0, COUNT_MAX).convert(offset, param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter,
                       incomplete: str) -> list[CompletionItem]:
        return [click.shell_completion.CompletionItem(word) for word in ("earliest", "latest")
                if word.startswith(incomplete)]


class OffsetSpan(click.ParamType):
    """A span of offsets, in the forms of rpk."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> Span:
        if isinstance(value, Span):
            return value
        try:
            return parse_span(value, _now_ms())
        except ValueError as error:
            self.fail(f"{shown(value)} {error}", param, ctx)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def complete_topic(context: click.Context, _parameter: click.Parameter,
                   incomplete: str) -> list[str]:
    """Return the names of topics that begin with ``incomplete``, for the shell; none when no
    cluster answers within ``COMPLETION_S``."""
    names: list[str] = []
    # A thread, because the lookup of a host name cannot be cancelled.
    asking = threading.Thread(target=_ask_topics, args=(context.obj, names), daemon=True)
    asking.start()
    asking.join(COMPLETION_S)
    return [name for name in names.copy() if name.startswith(incomplete)]


def _ask_topics(session: Session, names: list[str]) -> None:
    from admin_cli import connection  # the client is loaded only when Tab is pressed on a topic

    with contextlib.suppress(click.ClickException, OSError):
        with connection.open_session(session) as client:
            names += [row.name for row in client.list_topics()]


class Text(click.ParamType):
    """Text that is valid on the wire: a command line is bytes, and may be invalid UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            self.fail(f"{shown(value)} is not UTF-8.", param, ctx)
        return value


TEXT = Text()
topic_argument = click.argument("topic", metavar="TOPIC", type=TEXT, shell_complete=complete_topic)
topics_argument = click.argument("topics", metavar="TOPIC...", type=TEXT, nargs=-1, required=True,
                                 shell_complete=complete_topic)
