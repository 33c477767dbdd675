"""Requests about settings: judge changes and propose them, describe what holds.

Contract.  As ``node/admin/requests.py``, which calls these handlers.  The metadata leader compares
each change with the registry of its release and proposes canonical text, so that replicas store
without judging.  Any node describes the settings from its copy of the metadata, and those of topics
that nodes make also from its own configuration.

Theory.  A change is judged by the settings that the topic has.  The command names the index at
which they were changed last, and is refused if they were changed again meanwhile; the handler then
judges once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from multiraft.settings import contradictions
from multiraft.settings.effective import Defaults, resolve, values_of
from multiraft.settings.registry import SETTINGS, InvalidSetting, Setting, find, read_value
from multiraft.wire import errors
from multiraft.wire import settings as wire
from multiraft.wire.errors import Code, UnknownTopic, exception_for
from multiraft.wire.settings import SettingChange
from node.metadata.setting_commands import NO_TOPIC_ID, AlterSettings
from node.metadata.settings_table import CLUSTER, Settings
from node.metadata.state_machine import MetadataState

if TYPE_CHECKING:
    from node.metadata.log import MetadataLog

#: Times that a change is judged anew because other changes came between: more than that many
#: clients rarely change one topic at a time, and a refused one may ask again.
ATTEMPTS_MAX = 8


class Subject(NamedTuple):
    """A topic whose settings are asked for or changed, or the cluster: then ``name`` is empty and
    ``incarnation`` is ``CLUSTER``."""

    name: str
    id: bytes
    incarnation: int


_THE_CLUSTER = Subject("", NO_TOPIC_ID, CLUSTER)


class SettingAdmin:
    """Handlers of requests about settings."""

    def __init__(self, metadata_log: MetadataLog,
                 of_node: Mapping[str, Mapping[str, str]] = MappingProxyType({})):
        """``of_node``: topic that nodes make -> its settings in this node's configuration."""
        self._metadata_log = metadata_log
        self._of_node = of_node

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler."""
        return {wire.AlterSettings: self._alter, wire.DescribeSettings: self._describe}

    async def _alter(self, request: wire.AlterSettings) -> wire.AlterSettingsReply:
        for attempt in range(ATTEMPTS_MAX):
            self._metadata_log.check_leading()
            state = self._metadata_log.state
            subject = _subject(state, request.topic, request.incarnation)
            before = state.settings.of(subject.incarnation)
            changes = judged(state, subject.name, before, request.changes)
            if request.dry_run:
                break
            result = await self._metadata_log.propose(
                AlterSettings(subject.name, subject.id, changes, before.version))
            if result.code == Code.STALE_METADATA and attempt + 1 < ATTEMPTS_MAX:
                continue
            if result.code != Code.OK:
                raise exception_for(result.code, result.error)
            break
        return wire.AlterSettingsReply()

    async def _describe(self, request: wire.DescribeSettings) -> wire.DescribeSettingsReply:
        state = self._metadata_log.state
        subject = _subject(state, request.topic, 0)
        own = dict(state.settings.of(subject.incarnation).pairs) if subject.name else {}
        defaults = defaults_of(state)._replace(of_node=self._of_node)
        return wire.DescribeSettingsReply(subject.incarnation, tuple(
            _row(setting, own, defaults, subject.name) for setting in SETTINGS.values()))


def _subject(state: MetadataState, name: str, incarnation: int) -> Subject:
    """Return the topic of that name, or the cluster.  Raises ``UnknownTopic`` if the topic does not
    exist, or has another incarnation than the one given (0 = any)."""
    if not name:
        return _THE_CLUSTER
    topic = state.topic(name)
    if topic is None:
        raise UnknownTopic(f"no topic is named {name!r:.80}")
    if incarnation not in (0, topic.incarnation):
        raise UnknownTopic(f"topic {name!r:.80} has incarnation {topic.incarnation}, and not "
                           f"{incarnation}: it was deleted and created again")
    return Subject(topic.name, topic.id, topic.incarnation)


def defaults_of(state: MetadataState) -> Defaults:
    """Return the values of topics without settings of their own."""
    return Defaults(dict(state.settings.of(CLUSTER).pairs), state.replication_factor)


def judged(state: MetadataState, topic: str, before: Settings,
           changes: Sequence[SettingChange]) -> tuple[SettingChange, ...]:
    """Return ``changes`` to settings of a topic, or of the cluster if ``topic`` is "", with
    canonical values; ``before``: its present settings.  Raises ``errors.InvalidSetting`` with the
    reason of a refusal.  O(settings)."""
    own = dict(before.pairs)
    try:
        canonical = tuple(_canonical(change, own, state.replication_factor) for change in changes)
        for name, value in canonical:
            if value is None:
                own.pop(name, None)
            else:
                own[name] = value
        values = (values_of(own, defaults_of(state), topic) if topic
                  else values_of({}, Defaults(own, state.replication_factor), ""))
        contradictions.check(values, {change.name for change in changes})
    except InvalidSetting as error:
        raise errors.InvalidSetting(str(error)) from error
    return canonical


def _canonical(change: SettingChange, own: dict[str, str], replication_factor: int
               ) -> SettingChange:
    if change.value is not None:
        return SettingChange(change.name,
                             read_value(change.name, change.value, replication_factor))
    if change.name not in own:  # else even one that a later release has set may be deleted
        find(change.name)
    return change


def _row(setting: Setting, own: dict[str, str], defaults: Defaults, topic: str) -> wire.SettingRow:
    values = tuple(wire.SettingValue(value, source.word)
                   for value, source in resolve(setting, own, defaults, topic))
    return wire.SettingRow(setting.name, *values[0], setting.effect.value,
                           setting.type.kind.name.lower(), values)
