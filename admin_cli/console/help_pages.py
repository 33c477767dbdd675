"""`multiraft help`: pages about what many commands share, and the help of each command.

Contract.  `HelpfulCommand` is the class of every command of this package.  `write_options` writes
its help and that of groups: options of the connection stand last, under a heading of their own.  A
page is text of at most 80 columns; what
other modules define (exit codes, TLS options, forms of a time) is taken from there.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from admin_cli import servers
from admin_cli.console.options import COMPRESSIONS, TLS_FLAGS, ConnectionOption
from admin_cli.failures import PLAN_USAGE, CommandFailed, ExitCode
from admin_cli.values import times
from admin_cli.values.text import in_one_line, nearest

#: What a script does about each exit code.
_MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "refused or failed, definitely",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.UNREACHABLE: "nothing answers, or not in time (no leader): try again",
    ExitCode.NOT_FOUND: "the topic, group, node or cluster named does not exist",
    ExitCode.AMBIGUOUS: "ambiguous: it may or may not have happened; look before repeating",
    ExitCode.INCOMPLETE: "`consume` stopped before its end, at an open transaction or at deleted "
                          "records",
    ExitCode.UNHEALTHY: "`cluster status --check`: the cluster is not healthy",
    ExitCode.INTERRUPTED: "Ctrl-C",
}


def write_options(command: click.Command, ctx: click.Context,
                  formatter: click.HelpFormatter) -> None:
    """Write the command's own options, the subcommands of a group, then the options of the
    connection."""
    own: list[tuple[str, str]] = []
    connection: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and isinstance(parameter, click.Option):
            (connection if isinstance(parameter, ConnectionOption) else own).append(record)
    _write_section(formatter, "Options", own)
    if isinstance(command, click.Group):
        command.format_commands(ctx, formatter)
    _write_section(formatter, "Connection", connection)


def _write_section(formatter: click.HelpFormatter, title: str,
                   rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


class HelpfulCommand(click.Command):
    """A command whose help shows the options of the connection last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options as ``write_options`` does."""
        write_options(self, ctx, formatter)


def _rows(rows: dict[str, str]) -> str:
    formatter = click.HelpFormatter(width=80)
    with formatter.indentation():
        formatter.write_dl(list(rows.items()))
    return formatter.getvalue()


def _connection() -> str:
    return f"""The cluster that a command talks to is the first of:

  1. --servers HOST:PORT,...  client addresses; one that is alive is enough
  2. the environment's {servers.VARIABLE}
  3. the development cluster in ./dev-cluster; if that is stopped and 4 runs, 4
  4. the development cluster that was started last, from any directory

--servers stands before or behind the command. Its names in other products
(--bootstrap-server, --brokers, --server, --endpoints) are accepted. An error
says which of the four named the cluster. TLS: `multiraft help tls`.
"""


def _tls() -> str:
    rows = {"--tls": f"Trust the CAs of this system. [{servers.tls_variable('tls')}=1]"}
    for flag, (text, others) in TLS_FLAGS.items():
        variable = servers.tls_variable(flag.removeprefix("--").replace("-", "_"))
        also = f" Also {', '.join(others)}." if others else ""
        rows[flag] = f"{text} [{variable}]{also}"
    return ("Each option has a variable of the environment, in brackets. Each of the others\n"
            f"implies --tls.\n\n{_rows(rows)}\n"
            "A cluster whose nodes require certificates of clients needs --tls-cert and\n"
            "--tls-key. Certificates for nodes and clients: docs/security.md.\n")


def _times() -> str:
    return f"""A time, for `consume --from` and `topic offsets --at`, is one of:

{_rows({"2026-11-20T10:00:00Z": "a date or time of ISO 8601; UTC where it names no zone",
        "@1795168800000": "milliseconds since 1970",
        "-1h30m": "so long ago, in units of s, m, h, d, w"})}
Each partition begins at its first record at or after that time, and at its end
where there is none. Short form: {times.FORMS}.
"""


def _exit_codes() -> str:
    rows = {str(int(code)): meaning for code, meaning in _MEANINGS.items()}
    return f"""{_rows(rows)}
`rebalance`, `group pool`, `placement whatif` and the commands of `node` that
make plans have codes of their own: 0 done, 1 refused or failed, 2 nothing to
do, 3 cannot be done, or nothing answers in time, 4 the plan is stale, 5 the
plan has paused itself, {PLAN_USAGE} the command line is wrong. `chaos` and `log
inspect`: docs/cli.md.
"""


def _formats() -> str:
    return f"""Output:  Results go to standard output; notes, progress and errors to standard
         error. A terminal gets a table, a pipe plain aligned columns.
--json   One line when piped. Names stay from release to release, new ones come.
         Bytes that are not UTF-8 are in base64, as `value_base64`.
Sizes    64GiB, 500MiB, 64k, or a number of bytes; rates the same, per second.
Numbers  ASCII digits.
Addresses  HOST:PORT, with an IPv6 address in brackets: [::1]:9101.
Topics   1 to 249 of A-Z a-z 0-9 . _ -
Compression  {', '.join(COMPRESSIONS)}
"""


def _settings() -> str:
    from multiraft.settings.registry import SETTINGS, Effect, Role  # loaded for this page only

    rows = {setting.name: f"{setting.type.range_text} [{setting.default}]"
            + (" *" if setting.effect is Effect.STORED else "")
            for setting in SETTINGS.values() if setting.role is Role.IMPLEMENTED}
    return f"""Settings of topics, with the names of Kafka; the default is in brackets.
* = checked and stored, not carried out by this release.

{_rows(rows)}
`topic create -c NAME=VALUE`, `topic alter TOPIC --set NAME=VALUE --delete NAME`
and, for topics without a value of their own, `cluster settings --set`. `topic
describe --settings` shows all {len(SETTINGS)}: Kafka's other settings are accepted without
effect, or fixed where the value is a promise. docs/topic-settings.md: reasons.
"""


#: Page -> its text, and its line in the list.
PAGES: dict[str, tuple[Callable[[], str], str]] = {
    "connection": (_connection, "How a command finds its cluster."),
    "tls": (_tls, "Certificates and keys."),
    "times": (_times, "How a time is written."),
    "exit-codes": (_exit_codes, "What a script can tell from the exit code."),
    "formats": (_formats, "How output, JSON, sizes and names are written."),
    "settings": (_settings, "Settings of topics: names, values, effects."),
}


@click.command("help", cls=HelpfulCommand)
@click.argument("words", metavar="[PAGE | COMMAND...]", nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show a page, or the help of a command.

    Pages: connection, tls, times, exit-codes, formats, settings.
    """
    if len(words) == 1 and words[0] in PAGES:
        click.echo(PAGES[words[0]][0]().rstrip())
        return
    click.echo(_help_of(ctx.find_root(), words))
    if not words:
        click.echo(f"\nPages of `multiraft help`:\n"
            f"{_rows({name: text for name, (_page, text) in PAGES.items()})}".rstrip())


def _help_of(ctx: click.Context, words: tuple[str, ...]) -> str:
    """Return the help of a command.  Raises ``CommandFailed`` for an unknown one."""
    for word in words:
        group = ctx.command
        found = group.get_command(ctx, word) if isinstance(group, click.Group) else None
        if found is None:
            names = group.list_commands(ctx) if isinstance(group, click.Group) else []
            near = nearest(word, names if ctx.parent else [*names, *PAGES])
            raise CommandFailed(
                f"there is no command or page `{in_one_line(' '.join(words))}`.",
                f"Did you mean `multiraft help {near}`?" if near and not ctx.parent else
                f"See `{ctx.command_path} --help`.", ExitCode.USAGE)
        ctx = click.Context(found, ctx, word, obj=ctx.obj)
    return ctx.get_help()
