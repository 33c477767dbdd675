"""Flags of other tools on `produce` and `consume`, answered with the flag that is used here.

Contract.  A flag that means the same is a hidden option of the command itself.  A flag that does
not is in a table here: flag -> what to do instead, as the end of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from admin_cli.console.help_pages import HelpfulCommand
from admin_cli.console.options import TEXT, complete_topic
from admin_cli.values.text import shell_word

_TOPICS = "multiraft.topics"
_ARGUMENTS = "multiraft.arguments"

_CONNECTION_HINTS = {
    "-b": "addresses are named with --servers HOST:PORT",
    "-X": "addresses are named with --servers HOST:PORT, TLS files with --tls-ca and its like",
    "-F": "addresses are named with --servers HOST:PORT or the variable MULTIRAFT_SERVERS",
}
#: Of kcat, rpk, kafka-console-producer and nats.
PRODUCE_HINTS = {
    **_CONNECTION_HINTS,
    "-P": "`multiraft produce` appends without it",
    "-v": "the outcome is always printed at the end",
    "-C": "reading is `multiraft consume`",
    "-D": "write the text that ends a record into a format: --format '%v;'",
    "-l": "a file of lines is named with --file",
    "-T": "the input is not repeated; `tee` does that",
    "-c": "cut the input: head -n 100 | multiraft produce TOPIC",
    "-n": "records are not repeated; run the command in a loop",
    "-o": "the outcome is counted at the end, and --json prints the counts",
    "--output-format": "the outcome is counted at the end, and --json prints the counts",
    "--line-reader": "the form of the input is --format or --from-json",
    "--producer-property": "settings are flags here: --acks, --batch-bytes, --timeout",
    "--command-property": "settings are flags here: --acks, --batch-bytes, --timeout",
    "--producer.config": "settings are flags here: --acks, --batch-bytes, --timeout",
    "--command-config": "settings are flags here: --acks, --batch-bytes, --timeout",
    "--sync": "the command ends when every record is acknowledged",
    "--message-send-max-retries": "records are sent again until --timeout",
    "--retry-backoff-ms": "records are sent again until --timeout",
    "--request-timeout-ms": "the time for a record is --timeout",
    "--max-block-ms": "the time for a record is --timeout",
    "--schema-id": "values are bytes here, without schemas",
    "--reply": "a topic has no replies",
    "--count": "records are not repeated; run the command in a loop",
}
#: Of kcat, rpk, kafka-console-consumer and nats.
CONSUME_HINTS = {
    **_CONNECTION_HINTS,
    "-C": "`multiraft consume` reads without it",
    "-u": "output to a terminal, and that of --follow, is never held back",
    "-v": "waits are always reported, except with --quiet",
    "-w": "new records are awaited with --follow",
    "--watch": "new records are awaited with --follow",
    "-P": "appending is `multiraft produce`",
    "-G": "there are no consumer groups; continue with --from PARTITION=OFFSET,...",
    "-g": "there are no consumer groups; continue with --from PARTITION=OFFSET,...",
    "--group": "there are no consumer groups; continue with --from PARTITION=OFFSET,...",
    "-J": "records as JSON are --json",
    "-D": "write the text between records into a format: --format '%v;'",
    "-K": r"print keys with a format: --format '%k:%v\n'",
    "-s": "bytes are decoded with a format: --format '%v{hex}'",
    "-Z": "a record without a value is null with --json",
    "-O": r"print offsets with a format: --format '%o %v\n'",
    "--property": r"print keys and times with a format: --format '%d %k %v\n'",
    "--formatter-property": r"print keys and times with a format: --format '%d %k %v\n'",
    "--formatter": r"print keys and times with a format: --format '%d %k %v\n'",
    "--timeout-ms": "reading ends at the end of the topic; without an answer after --timeout",
    "--isolation-level": "it is --isolation here",
    "--include": "it is --regex here",
    "--whitelist": "it is --regex here",
    "--consumer-property": "settings are flags here: --from, --isolation, --rack, --timeout",
    "--command-property": "settings are flags here: --from, --isolation, --rack, --timeout",
    "--consumer.config": "settings are flags here: --from, --isolation, --rack, --timeout",
    "--command-config": "settings are flags here: --from, --isolation, --rack, --timeout",
    "--meta-only": r"leave the value out of a format: --format '%p %o %k\n'",
    "--print-control-records": "there are no control records",
    "--pretty-print": "one record is one line; `| jq` shows it on several",
    "--last": "the last record of each partition is --offset -1",
    "--all": "the whole topic is read by default",
    "--new": "only new records are --from latest",
    "--start-sequence": "an offset is --from OFFSET",
    "--since": "a time ago is --from -1h30m",
    "--raw": "raw values are the default",
}


class TranslatedCommand(HelpfulCommand):
    """A command that answers flags of other tools with its own."""

    def __init__(self, *args: Any, hints: Mapping[str, str], **extra: Any):
        super().__init__(*args, **extra)
        self._hints = hints

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises a usage error for a flag of another tool, which says what to
        use."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = self._hints.get(error.option_name)
            if hint is None:
                raise
            raise click.UsageError(f"There is no {error.option_name}: {hint}.", ctx) from error


class ProduceCommand(TranslatedCommand):
    """`produce`, which answers records on the command line with the pipe that appends them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises a usage error for words behind TOPIC that says where records
        come from."""
        typed = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if isinstance(error, click.NoSuchOption) or "extra argument" not in error.message:
                raise
            options, extra, _ = self.make_parser(ctx).parse_args(typed)
            line = (f"echo {shell_word(' '.join(extra))} | multiraft produce "
                    f"{shell_word(options['topic'])}")
            raise click.UsageError(f"{error.message}. Records are read from standard input: {line}",
                                   ctx) from error


def typed_arguments(ctx: click.Context) -> tuple[str, ...]:
    """Return the words behind the name of a ``TranslatedCommand``, as they were typed."""
    return ctx.meta[_ARGUMENTS]


class TopicArgument(click.Argument):
    """TOPIC, which other tools name with ``--topic`` or ``-t``."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, Any]:
        value, source = super().consume_value(ctx, opts)
        named = ctx.meta.get(_TOPICS, ())
        if not named or ctx.resilient_parsing:
            return value, source
        if source is ParameterSource.COMMANDLINE:
            raise click.UsageError("TOPIC is given twice: as an argument and with --topic.", ctx)
        if self.nargs == 1 and len(named) > 1:
            raise click.UsageError(f"--topic is given {len(named)} times; records are appended to "
                                   "one topic.", ctx)
        return (named if self.nargs == -1 else named[0]), ParameterSource.COMMANDLINE


def _remember_topics(ctx: click.Context, _parameter: click.Parameter,
                     value: tuple[str, ...]) -> None:
    if value:
        ctx.meta[_TOPICS] = value


def topic_argument(name: str, several: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of TOPIC, or of one and more TOPICs, and of its hidden flags."""
    metavar = "TOPIC..." if several else "TOPIC"

    def add(command: Callable[..., Any]) -> Any:
        command = click.argument(name, cls=TopicArgument, metavar=metavar, type=TEXT,
                                 nargs=-1 if several else 1, required=True,
                                 shell_complete=complete_topic)(command)
        return click.option("--topic", "-t", "topic_flags", multiple=True, hidden=True,
                            is_eager=True, expose_value=False, type=TEXT,
                            callback=_remember_topics)(command)

    return add
