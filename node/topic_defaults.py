"""The table [topic_defaults] of ``node.toml``: defaults of topics with which a new cluster begins.

Contract. ``parse`` returns (name, canonical value) of each setting, by name, and raises
``BadConfig`` with the key and the expectation. The first leader proposes them with the bootstrap
(``bootstrap.py``). An existing cluster ignores the table: ``multiraft cluster settings`` changes
its defaults.
"""

from __future__ import annotations

from multiraft.settings import contradictions
from multiraft.settings.effective import Defaults, values_of
from multiraft.settings.registry import MIN_INSYNC_REPLICAS, InvalidSetting, read_value
from multiraft.settings.values import LONG_MAX
from multiraft.wire.settings import SETTING_VALUE_MAX
from node.errors import BadConfig

TABLE = "topic_defaults"

#: Characters of the settings in a log line: those of usual tables, and not lists of replicas.
SHOWN_MAX = 300

Pairs = tuple[tuple[str, str], ...]


def parse(table: object, replication_factor: int) -> Pairs:
    """Return the settings in the table of a cluster with that replication factor, 0 = not known: a
    node that joins. Raises ``BadConfig`` for an unknown name, a wrong value, or two values that
    contradict each other."""
    if not isinstance(table, dict):
        raise BadConfig(f"{TABLE} must be a table, not {table!r:.60}")
    try:
        pairs = {name: _canonical(name, value, replication_factor)
                 for name, value in sorted(table.items())}
        contradictions.check(values_of({}, Defaults(pairs, replication_factor), ""), pairs)
    except InvalidSetting as error:
        raise BadConfig(f"{TABLE}.{error}") from error
    return tuple(pairs.items())


def shown(pairs: Pairs) -> str:
    """Return the settings as one text of bounded length."""
    text = ", ".join(f"{name}={value}" for name, value in pairs) or "none"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX - 3]}..."


def _canonical(name: str, value: object, replication_factor: int) -> str:
    if isinstance(value, dict):
        raise BadConfig(f"{TABLE}.{name:.100} is a table: quote the whole name of a setting, as in "
                        f'"retention.ms" = 604800000')
    text = _text(name, value)
    if len(text) > SETTING_VALUE_MAX:
        raise BadConfig(f"{TABLE}.{name:.100} has {len(text)} characters, the limit is "
                        f"{SETTING_VALUE_MAX}")
    if name == MIN_INSYNC_REPLICAS and not replication_factor:
        return text  # the only value that is accepted is not known
    return read_value(name, text, replication_factor)


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, int) and abs(value) <= LONG_MAX or isinstance(value, float):
        return str(value)
    raise BadConfig(f"{TABLE}.{name:.100} must be text, true or false, or a number of at most 2^63 "
                    f"- 1, not a value of type {type(value).__name__}")
