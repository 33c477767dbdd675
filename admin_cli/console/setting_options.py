"""Options of commands that set and delete settings of topics.

Contract.  A setting is ``NAME=VALUE``; its name is completed by the shell.  The node judges name
and value, because it knows which settings its release has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from admin_cli.console.options import TEXT
from admin_cli.values.numbers import shown
from multiraft.wire.settings import SETTING_NAME_MAX, SETTING_VALUE_MAX, SETTINGS_PER_TOPIC_MAX

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = Callable[..., object]


def _completed(incomplete: str, behind: str) -> list[CompletionItem]:
    # loaded only when Tab is pressed on a setting
    from click.shell_completion import CompletionItem

    from multiraft.settings.registry import SETTINGS
    return [CompletionItem(f"{name}{behind}") for name in SETTINGS if name.startswith(incomplete)]


class SettingName(click.ParamType):
    """``retention.ms``: the name of a setting."""

    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found: str = TEXT.convert(value, param, ctx)
        if not 0 < len(found) <= SETTING_NAME_MAX:
            self.fail(f"{shown(found)} is not the name of a setting.", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter,
                       incomplete: str) -> list[CompletionItem]:
        return _completed(incomplete, "")


class SettingPair(click.ParamType):
    """``retention.ms=604800000``: a setting with its value."""

    name = "setting"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, separator, text = TEXT.convert(value, param, ctx).partition("=")
        if not separator or not 0 < len(name.strip()) <= SETTING_NAME_MAX:
            self.fail(f"{shown(value)} is not NAME=VALUE, for example retention.ms=604800000.",
                      param, ctx)
        if len(text) > SETTING_VALUE_MAX:
            self.fail(f"a value has {SETTING_VALUE_MAX} characters at most, this one {len(text)}.",
                      param, ctx)
        return name.strip(), text.strip()

    def shell_complete(self, ctx: click.Context, param: click.Parameter,
                       incomplete: str) -> list[CompletionItem]:
        return [] if "=" in incomplete else _completed(incomplete, "=")


def _distinct(context: click.Context, parameter: click.Parameter,
              pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return name -> value; a setting that is named twice is a usage error."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise click.BadParameter(f"{shown(name)} is named twice.", context, parameter)
        found[name] = value
    _check_count(context, parameter, found)
    return found


def _check_count(context: click.Context, parameter: click.Parameter, found: Any) -> None:
    if len(found) > SETTINGS_PER_TOPIC_MAX:
        raise click.BadParameter(f"{len(found)} settings, {SETTINGS_PER_TOPIC_MAX} at most.",
                                 context, parameter)


def _names(context: click.Context, parameter: click.Parameter,
           names: tuple[str, ...]) -> tuple[str, ...]:
    distinct = tuple(dict.fromkeys(names))
    _check_count(context, parameter, distinct)
    return distinct


def create_option(command: Command) -> Command:
    """Add the option that a topic is created with: `-c NAME=VALUE`, as often as needed."""
    return click.option("--config", "-c", "--topic-config", "--set", "settings",
                        type=SettingPair(), multiple=True, callback=_distinct,
                        metavar="NAME=VALUE", help="A setting; may be repeated.")(command)


def change_options(command: Command) -> Command:
    """Add the options that change settings: `--set NAME=VALUE` and `--delete NAME`."""
    command = click.option("--dry-run", is_flag=True, help="Only check the changes.")(command)
    command = click.option("--delete", "-d", "--delete-config", type=SettingName(), multiple=True,
                           callback=_names, metavar="NAME",
                           help="A setting that no longer has a value of its own; may be "
                                "repeated.")(command)
    return click.option("--set", "-c", "--config", "--add-config", "settings", type=SettingPair(),
                        multiple=True, callback=_distinct, metavar="NAME=VALUE",
                        help="A setting and its new value; may be repeated.")(command)


def require_changes(settings: dict[str, str], delete: tuple[str, ...]) -> None:
    """Return if there is a change, and no setting is both set and deleted; else it is a usage
    error."""
    if not settings and not delete:
        raise click.UsageError("nothing to change: --set NAME=VALUE or --delete NAME.")
    both = [name for name in delete if name in settings]
    if both:
        raise click.UsageError(f"{shown(both[0])} is both set and deleted.")
    if len(settings) + len(delete) > SETTINGS_PER_TOPIC_MAX:
        raise click.UsageError(f"{len(settings) + len(delete)} changes, {SETTINGS_PER_TOPIC_MAX} "
                               "at most.")
