"""Groups of subcommands, and the import of a command when it is used.

Contract.  Every group of commands builds on this module, and this module imports none of them: a
command is named as ``module:attribute`` and imported by ``load_command``, or comes from an entry
point through ``load_plugin``.
"""

from __future__ import annotations

import importlib
import importlib.metadata

import click

from admin_cli.failures import PLAN_USAGE, CommandFailed, ExitCode
from admin_cli.options import nearest

#: Entry points of this group are commands of other packages: name -> click command.
ENTRY_POINT_GROUP = "multiraft.commands"

#: Names of subcommands in other tools -> the name of the subcommand here.
SUBCOMMAND_ALIASES = {
    "ls": "list", "show": "describe", "get": "describe", "info": "describe", "inspect": "describe",
    "add": "create", "new": "create", "rm": "delete", "remove": "delete", "del": "delete",
    "elect": "transfer", "health": "status", "nodes": "status",
    "list-nodes": "status", "ps": "status", "destroy": "down",
}

#: Errors that importing a module of another package can raise.  An interrupt or exit is not among
#: them.
LOAD_ERRORS = (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError,
               LookupError, OSError, RuntimeError, AssertionError)


class HelpfulGroup(click.Group):
    """A group that suggests the nearest command when the name of a command is unknown."""

    aliases = SUBCOMMAND_ALIASES
    #: Commands that use the exit codes of plans; so does a misspelling of one of them.
    planned: tuple[str, ...] = ()

    def resolve_command(self, ctx: click.Context,
                        args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does. Raises ``CommandFailed`` for an unknown one, which names
        the nearest command."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None \
                and not name.startswith("-"):
            path = ctx.command_path
            ours = self.aliases.get(name)
            if ours is not None and self.get_command(ctx, ours.split()[0]) is None:
                ours = None  # a word for another group's command
            ours = ours or nearest(name, self.list_commands(ctx))
            raise CommandFailed(
                f"there is no command `{path} {name}`.",
                f"Did you mean `{path} {ours}`?" if ours else f"See `{path} --help`.",
                PLAN_USAGE if ours in self.planned else ExitCode.USAGE)
        return super().resolve_command(ctx, args)


def load_command(place: str) -> click.Command:
    """Import and return the command at ``place``, which is ``module:attribute``."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_plugin(entry_point: importlib.metadata.EntryPoint) -> click.Command:
    """Import and return the command of an entry point.  Raises ``CommandFailed`` that names the
    package when it cannot be loaded."""
    try:
        command = entry_point.load()
    except LOAD_ERRORS as error:
        raise CommandFailed(
            f"the command {entry_point.name!r} ({entry_point.value}) fails to load: "
            f"{type(error).__name__}: {error}.",
            "Reinstall or remove the package that brings it.") from error
    if not isinstance(command, click.Command):
        raise CommandFailed(f"the command {entry_point.name!r} ({entry_point.value}) is not a "
                            "click command.", "Reinstall or remove the package that brings it.")
    return command
