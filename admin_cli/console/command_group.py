"""Groups of subcommands, the answers to unknown names, and the import of a command when it is used.

Contract.  Every group of commands builds on this module, and this module imports none of them: a
command is named as ``module:attribute`` and imported by ``load_command``, or comes from an entry
point through ``load_plugin``.
"""

from __future__ import annotations

import importlib
import importlib.metadata

import click

from admin_cli.console import hints
from admin_cli.console.help_pages import HelpfulCommand, write_options
from admin_cli.failures import PLAN_USAGE, CommandFailed, ExitCode
from admin_cli.values.numbers import shown
from admin_cli.values.text import nearest

#: Entry points of this group are commands of other packages: name -> click command.
ENTRY_POINT_GROUP = "multiraft.commands"

#: Characters of a summary, which a list of commands wraps: more than any sentence here has.
SUMMARY_CHARACTERS = 1_000

#: Errors that importing a module of another package can raise.  An interrupt or exit is not among
#: them.
LOAD_ERRORS = (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError,
               LookupError, OSError, RuntimeError, AssertionError)


class HelpfulGroup(click.Group):
    """A group that answers unknown names of commands, and shows whole summaries in its help."""

    command_class = HelpfulCommand

    #: Commands that use the exit codes of plans; so does a misspelling of one of them.
    planned: tuple[str, ...] = ()

    def resolve_command(self, ctx: click.Context,
                        args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does. Raises ``CommandFailed`` for an unknown one, which names
        the command that was probably meant."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None \
                and not name.startswith("-"):
            raise self._unknown(ctx, args)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, args: list[str]) -> CommandFailed:
        name, known = args[0], ctx.command_path.split()[1:]
        hint = hints.of_command([*known, *args], len(known))
        ours = hints.SUBCOMMANDS.get(name) if known else None
        if ours is None or self.get_command(ctx, ours) is None:
            ours = nearest(name, self.list_commands(ctx))
        if hint is None and ours is not None:
            hint = hints.did_you_mean(" ".join([*known, ours]))
        if hint is None and not known:
            hint = hints.HINTS.get(nearest(name, hints.FIRST_WORDS) or "")
        code = PLAN_USAGE if ours in self.planned else ExitCode.USAGE
        return CommandFailed(f"there is no command `{ctx.command_path} {name}`.",
                             hint or f"See `{ctx.command_path} --help`.", code)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options and the list of commands as ``write_options`` does."""
        write_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in the help, each with its whole summary."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, summary(command)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def summary(command: click.Command) -> str:
    """Return the first sentence of a command's help, uncut; the formatter breaks its line."""
    return command.get_short_help_str(limit=SUMMARY_CHARACTERS)


def explain_option(error: click.NoSuchOption) -> click.UsageError:
    """Return the error for an unknown option with the sentence about it, or with the nearest
    option that is not hidden: click would name hidden ones as well."""
    ctx = error.ctx
    said = f"No such option {shown(error.option_name)}."
    if ctx is not None:
        hint = hints.of_option(ctx.command_path.split()[1:], error.option_name)
        near = nearest(error.option_name, _options_shown(ctx))
        if hint is not None:
            said += f" {hint}"
        elif near is not None:
            said += f" Did you mean {near}?"
    explained = click.UsageError(said, ctx)
    explained.exit_code = error.exit_code  # type: ignore[misc]  # plans have codes of their own
    return explained


def _options_shown(ctx: click.Context) -> list[str]:
    return [name for parameter in ctx.command.get_params(ctx)
            if isinstance(parameter, click.Option) and not parameter.hidden
            for name in (*parameter.opts, *parameter.secondary_opts)]


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
