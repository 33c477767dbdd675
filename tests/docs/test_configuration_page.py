"""The page of the configuration file, made from the source."""

import os
import tomllib
from dataclasses import fields

from multiraft.raft.config import RaftConfig
from multiraft.storage.settings import StorageSettings
from node import config
from node.limits import Limits
from node.security_config import SecurityConfig
from tests.docs.field_comments import reasons, shown
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "configuration.md"
MARK = "<!-- tables: made from the source by tests/docs/test_configuration_page.py -->\n"
TABLES = (
    ("storage", StorageSettings, "multiraft/storage/settings.py", "The disk."),
    ("http", config.HttpConfig, "node/config.py",
     "Metrics and health ([`metrics.md`](metrics.md))."),
    ("metrics", config.MetricsConfig, "node/config.py",
     "Loads published as records ([`spark-planning.md`](spark-planning.md))."),
    ("kafka", config.KafkaConfig, "node/config.py",
     "The port of Kafka's clients. Its certificates are those of the client port, in `[security]`. "
     "With `advertised_address` a wildcard may be listened at; the address that Kafka's "
     "clients receive is registered with the cluster at each start."),
    ("compaction", config.CompactionConfig, "node/config.py",
     "Compaction by key. Nothing is ordered as long as the release carries out no compaction."),
    ("security", SecurityConfig, "node/security_config.py",
     "Files, relative to `node.toml`; SIGHUP reads them again ([`security.md`](security.md))."),
)


def table(name: str, kind: type, path: str, text: str) -> str:
    """Return a section with a row per key."""
    told = reasons(path, kind)
    rows = []
    for item in fields(kind):
        assert told[item.name], f"{path}: {item.name} has no reason"
        default = shown(item.default) if item.default != "" else "empty"
        rows.append(f"| `{item.name}` | {default.lower()} | {told[item.name]} |\n")
    return (f"\n## [{name}]\n\n{text}\n\n| key | default | meaning and reason |\n|---|---|---|\n"
            + "".join(rows))


def renamed() -> str:
    """Return the section about keys of earlier releases."""
    rows = [f"| `{where}.{old}` | `{where}.{new}` |\n"
            for where, names in sorted(config.RENAMED.items())
            for old, new in sorted(names.items())]
    return ("\n## Keys of earlier releases\n\nStill read; the node's log names the present key "
            "(`config_key_renamed`). A file with both is refused.\n\n| key | now |\n|---|---|\n"
            + "".join(rows))


def page() -> str:
    """Return docs/configuration.md as generated from the source."""
    before = PAGE.read_text().split(MARK)[0]
    return before + MARK + "".join(table(*row) for row in TABLES) + renamed()


def test_the_page_says_what_the_source_says():
    expected = page()
    if os.environ.get("MULTIRAFT_REWRITE"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "MULTIRAFT_REWRITE=1 writes docs/configuration.md anew"


def test_the_page_names_every_table_and_its_example_is_accepted(tmp_path):
    text = PAGE.read_text()
    assert all(f"[{name}]" in text for name in ("node", "cluster", "raft", "limits"))
    example = text.split("```toml\n")[1].split("```")[0]
    parsed = config.parse(tomllib.loads(example), tmp_path)
    assert parsed.node.id == 1 and len(parsed.members) == 3
    defaults = text.split("```toml\n")[2].split("```")[0]
    both = config.parse(tomllib.loads(example + defaults), tmp_path)
    assert [name for name, _ in both.topic_defaults] == ["max.message.bytes", "retention.ms"]


def test_limits_and_raft_have_their_own_page():
    listed = {item.name for kind in (Limits, RaftConfig) for item in fields(kind)}
    text = (tree.ROOT / "docs" / "limits.md").read_text()
    assert all(f"`{name}`" in text for name in listed)
