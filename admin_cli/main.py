"""The root command: its commands, their sources and their exit.

Contract.  `main` is the console script.  Commands are imported on use, so that `multiraft --help`
and Tab stay fast.  Commands of other packages come from the entry-point group `multiraft.commands`
(name -> click command); one that cannot be loaded is reported in its place and harms no other.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from admin_cli.console import streams
from admin_cli.console.command_group import (
    ENTRY_POINT_GROUP,
    HelpfulGroup,
    explain_option,
    load_command,
    load_plugin,
    summary,
)
from admin_cli.console.options import servers_option
from admin_cli.failures import CommandFailed, ExitCode, Interrupted, of_this_machine
from admin_cli.packages import check_packages
from admin_cli.session import Session

#: Command -> its place, and its line in the help (so that help imports nothing).
COMMANDS = {
    "dev": (
        "admin_cli.commands.dev:dev",
        "Run a local cluster in the background, for development.",
    ),
    "topic": (
        "admin_cli.commands.topics:topic",
        "Create, list, describe, alter and delete topics.",
    ),
    "produce": (
        "admin_cli.records.produce:produce",
        "Append records to a topic: a line is a record.",
    ),
    "consume": ("admin_cli.records.consume:consume", "Read the records of a topic."),
    "cluster": (
        "admin_cli.commands.cluster:cluster",
        "Show the nodes and the groups that they lead; set the defaults of topics.",
    ),
    "group": (
        "admin_cli.commands.groups:group",
        "Show and change Raft groups: leaders, members, pool.",
    ),
    "rebalance": (
        "admin_cli.plans.rebalance:rebalance",
        "Make and apply plans that move leaders, partitions and replicas.",
    ),
    "metrics": (
        "admin_cli.plans.metrics:metrics",
        "Export loads of the cluster as tables in Parquet.",
    ),
    "sink": ("admin_cli.commands.sinks:sink", "Show sinks and abort their open transactions."),
    "placement": (
        "admin_cli.commands.placements:placement",
        "Show and explain the groups of partitions; switch one.",
    ),
    "node": ("admin_cli.commands.nodes:node", "Show and manage the nodes of a cluster; run one."),
    "completion": (
        "admin_cli.commands.completion:completion",
        "Set up shell completion for bash, zsh and fish.",
    ),
    "version": ("admin_cli.commands.version:version", "Show the versions of installed packages."),
    "help": (
        "admin_cli.console.help_pages:help_command",
        "Show a page (connection, tls, times, exit-codes, formats, settings) or a command's help.",
    ),
}


class Root(HelpfulGroup):
    """Built-in commands by table, others by entry point, all imported on use."""

    def make_context(self, info_name: str | None, args: list[str],
                     parent: click.Context | None = None, **extra: Any) -> click.Context:
        """Make click's context with a session for the commands (Tab completion makes a context
        too)."""
        extra.setdefault("obj", Session(os.environ))
        try:
            return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except click.NoSuchOption as error:
            raise explain_option(error) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return built-in commands in the order of the table, then the others by name."""
        return [*COMMANDS, *sorted(plugins())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None for an unknown name. Raises ``CommandFailed`` when a
        plug-in cannot be loaded."""
        if cmd_name in COMMANDS:
            return load_command(COMMANDS[cmd_name][0])
        entry_point = plugins().get(cmd_name)
        return None if entry_point is None else load_plugin(entry_point)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list in the help; imports only plug-ins, which may be broken."""
        rows = [(name, text) for name, (_where, text) in COMMANDS.items()]
        for name, entry_point in sorted(plugins().items()):
            try:
                rows.append((name, summary(load_plugin(entry_point))))
            except CommandFailed as error:
                rows.append((name, f"(cannot be loaded: {error.message})"))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C leaves as ``Interrupted``, an error of this machine as
        ``CommandFailed``."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except click.NoSuchOption as error:
            raise explain_option(error) from error
        except click.Abort as error:  # of a question that was not answered
            if isinstance(error.__context__, KeyboardInterrupt):
                raise Interrupted from error
            raise
        except OSError as error:
            raise of_this_machine(error) from error


def plugins() -> dict[str, importlib.metadata.EntryPoint]:
    """Return commands of other packages by name, not loaded; built-in commands win."""
    found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point for point in found if point.name not in COMMANDS}


@click.command(cls=Root, context_settings={"help_option_names": ["-h", "--help"],
                                           "max_content_width": 100})
@click.version_option(package_name="multiraft", prog_name="multiraft")
@servers_option
def cli() -> None:
    """A distributed commit log.

    \b
    Try it:  multiraft dev up
             multiraft topic create greetings
             echo hello | multiraft produce greetings
             multiraft consume greetings
    """


def main(arguments: Sequence[str] | None = None,
         check: Callable[[], None] = check_packages) -> NoReturn:
    """Run the console script and exit the process with the command's code. ``check`` runs first."""
    streams.install()
    try:
        code = streams.finish(_exit_code(arguments, check))
    except KeyboardInterrupt:  # after the command, while its last words are written
        code = int(ExitCode.INTERRUPTED)
    sys.exit(code)


def _exit_code(arguments: Sequence[str] | None, check: Callable[[], None]) -> int:
    """Call ``check``, run the command, show its error if it failed, and return its exit code."""
    try:
        check()
        cli.main(args=arguments, prog_name="multiraft")
    except click.ClickException as error:  # of `check`, or of standard error's last flush
        error.show()
        return error.exit_code
    except SystemExit as ended:
        if isinstance(ended.code, str):
            click.echo(ended.code, err=True)
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return int(ExitCode.OK)
