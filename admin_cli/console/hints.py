"""Answers to commands and options that other products have and this command has not.

Contract.  Data only: `HINTS` maps typed words to a sentence, `SUBCOMMANDS` a word of any group to
the word here.  `find` chooses the row.  A row's words without a dash are the first words that were
typed; words with a dash are options that were typed anywhere behind them.  The longest row wins.
Every command that a sentence names exists; a test tries each.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Words of a command line that are compared; more come from a shell's wildcard.
WORDS_MAX = 64
#: Kafka's scripts end with this where they are not packaged.
_SCRIPT = ".sh"

#: Names of subcommands in other tools -> the name of the subcommand here.
SUBCOMMANDS = {
    "ls": "list", "show": "describe", "get": "describe", "info": "describe", "inspect": "describe",
    "add": "create", "new": "create", "rm": "delete", "remove": "delete", "del": "delete",
    "elect": "transfer", "step-down": "transfer", "health": "status", "nodes": "status",
    "list-nodes": "status", "ps": "status", "destroy": "down", "log": "logs", "tail": "logs",
}


def did_you_mean(command: str) -> str:
    """Return the question that names the command of this product."""
    return f"Did you mean `multiraft {command}`?"


_ADD_PARTITIONS = did_you_mean("topic add-partitions")
_SETTINGS = ("Settings of a topic: `multiraft topic describe TOPIC --settings`, "
             "`multiraft topic alter TOPIC --set NAME=VALUE`.")
_NO_CONSUMER_GROUPS = ("There are no consumer groups: each consumer keeps its own offsets, and "
                       "continues at one with `multiraft consume TOPIC --from`. A group is a Raft "
                       "group here: `multiraft group list`.")
_NO_USERS = ("There are no users and no access rules: TLS certificates decide which clients may "
             "connect, see `multiraft help tls`.")
_BENCH = ("Nothing measures a cluster from this command: `make bench-first-light` in the source "
          "tree does.")
_BACKUP = ("To save the records of a topic: `multiraft consume TOPIC --json --until-end`. Never "
           "restore a copy of a data directory as the same node.")
_PURGE = did_you_mean("topic delete-records")
_SIZES = ("Sizes of the log are shown per node by `multiraft cluster status`, and per replica by "
          "`multiraft group describe GROUP`.")
_LEADERS = ("One group: `multiraft group transfer GROUP NODE`. All groups: `multiraft rebalance "
            "plan --scope leaders`.")
_CHOICE = ("The cluster is chosen with `--servers HOST:PORT,...` or MULTIRAFT_SERVERS, see "
           "`multiraft help connection`.")
_JOIN = ("A new node joins with `multiraft node init --join`, on a development cluster with "
         "`multiraft dev add-node`. One more member of a group: `multiraft group members GROUP "
         "--add-learner NODE`.")
_NODE_OF_GROUP = ("It is an option of `multiraft group members`: --add-learner, --promote, "
                  "--demote or --remove.")
_NODE_SETTINGS = "Settings of a node are in its node.toml, which `multiraft node init` checks."
_STATUS = did_you_mean("cluster status")
_TOPICS = did_you_mean("topic list")
_NODES = did_you_mean("node list")
_PRODUCE = did_you_mean("produce")
_CONSUME = did_you_mean("consume")
_WATCH = did_you_mean("cluster status --watch")

#: Typed words -> the sentence.
HINTS = {
    # One word, of several products.
    "ls": _TOPICS, "list": _TOPICS, "create": did_you_mean("topic create"),
    "describe": did_you_mean("topic describe"), "delete": did_you_mean("topic delete"),
    "topics": _TOPICS, "topics list": _TOPICS, "topics create": did_you_mean("topic create"),
    "topics describe": did_you_mean("topic describe"),
    "topics delete": did_you_mean("topic delete"),
    "groups": did_you_mean("group list"), "partition": did_you_mean("topic describe"),
    "partitions": did_you_mean("topic describe"),
    "brokers": _NODES, "broker": _NODES, "nodes": _NODES,
    "status": _STATUS, "health": _STATUS, "info": _STATUS,
    "pub": _PRODUCE, "publish": _PRODUCE, "producer": _PRODUCE, "write": _PRODUCE,
    "send": _PRODUCE, "append": _PRODUCE, "put": _PRODUCE, "req": _PRODUCE, "request": _PRODUCE,
    "sub": _CONSUME, "subscribe": _CONSUME, "consumer": _CONSUME, "read": _CONSUME,
    "cat": _CONSUME, "fetch": _CONSUME, "get": _CONSUME,
    "tail": did_you_mean("consume --follow"), "watch": did_you_mean("consume --follow"),
    "up": did_you_mean("dev up"), "start": did_you_mean("dev up"),
    "down": did_you_mean("dev down"), "stop": did_you_mean("dev down"),
    "kill": did_you_mean("dev kill"), "restart": did_you_mean("dev restart"),
    "logs": did_you_mean("dev logs"), "top": _WATCH, "monitor": _WATCH, "events": _WATCH,
    "drain": did_you_mean("node drain"), "decommission": did_you_mean("node decommission"),
    "maintenance": did_you_mean("node maintenance"),
    "balance": did_you_mean("rebalance plan"), "reassign": did_you_mean("rebalance plan"),
    "bench": _BENCH, "benchmark": _BENCH, "perf": _BENCH, "perf-test": _BENCH,
    "user": _NO_USERS, "users": _NO_USERS, "acl": _NO_USERS, "acls": _NO_USERS,
    "role": _NO_USERS, "auth": _NO_USERS, "security": _NO_USERS,
    "backup": _BACKUP, "restore": _BACKUP, "snapshot": _BACKUP, "export": _BACKUP,
    "purge": _PURGE, "offsets": did_you_mean("topic offsets"),
    "context": _CHOICE, "profile": _CHOICE, "config": _NODE_SETTINGS,
    # Kafka's scripts.
    "kafka-topics": _TOPICS, "kafka-topics --list": _TOPICS,
    "kafka-topics --create": "To create a topic: `multiraft topic create NAME -p PARTITIONS`.",
    "kafka-topics --describe": did_you_mean("topic describe"),
    "kafka-topics --delete": did_you_mean("topic delete"),
    "kafka-topics --alter": "To add partitions: `multiraft topic add-partitions TOPIC --to N`. "
                            "To change settings: `multiraft topic alter TOPIC --set NAME=VALUE`.",
    "kafka-topics --alter --partitions": _ADD_PARTITIONS,
    "kafka-console-producer": _PRODUCE, "kafka-console-consumer": _CONSUME,
    "kafka-consumer-groups": _NO_CONSUMER_GROUPS, "consumer-groups": _NO_CONSUMER_GROUPS,
    "consumer-group": _NO_CONSUMER_GROUPS, "consumergroups": _NO_CONSUMER_GROUPS,
    "kafka-configs": _SETTINGS, "configs": _SETTINGS,
    "kafka-acls": _NO_USERS,
    "kafka-reassign-partitions": did_you_mean("rebalance plan"),
    "reassign-partitions": did_you_mean("rebalance plan"),
    "kafka-leader-election": _LEADERS, "kafka-log-dirs": _SIZES, "logdirs": _SIZES,
    "kafka-dump-log": did_you_mean("log inspect"),
    "kafka-get-offsets": did_you_mean("topic offsets"),
    "kafka-delete-records": _PURGE,
    "kafka-producer-perf-test": _BENCH, "kafka-consumer-perf-test": _BENCH,
    "kafka-server-start": did_you_mean("node start"),
    "kafka-storage": did_you_mean("node init"), "kafka-cluster": _STATUS,
    "kafka-broker-api-versions": _NODES,
    "kafka-metadata-quorum": "The metadata are Raft group 0: `multiraft group describe 0`.",
    # rpk.
    "cluster info": _STATUS, "cluster health": _STATUS, "cluster list": _STATUS,
    "cluster metadata": _STATUS, "cluster describe": _STATUS, "cluster logdirs": _SIZES,
    "cluster maintenance": did_you_mean("node maintenance"),
    "cluster partitions": did_you_mean("rebalance plan"),
    "cluster partitions transfer-leadership": did_you_mean("group transfer"),
    "cluster config": did_you_mean("cluster settings"),
    "redpanda": did_you_mean("node start"),
    "redpanda admin brokers": _NODES,
    "redpanda admin brokers decommission": did_you_mean("node decommission"),
    "container": did_you_mean("dev up"), "container start": did_you_mean("dev up"),
    "container stop": did_you_mean("dev down"), "container status": did_you_mean("dev status"),
    "container purge": did_you_mean("dev down --wipe"),
    "topic alter-config": did_you_mean("topic alter"), "topic config": _SETTINGS,
    "topic edit": did_you_mean("topic alter"), "topic update": did_you_mean("topic alter"),
    "topic alter --partitions": _ADD_PARTITIONS, "topic alter -p": _ADD_PARTITIONS,
    "topic alter --num": _ADD_PARTITIONS, "topic grow": _ADD_PARTITIONS,
    "topic create-partitions": _ADD_PARTITIONS, "topic trim-prefix": _PURGE, "topic purge": _PURGE,
    "topic produce": _PRODUCE, "topic consume": _CONSUME, "topic pub": _PRODUCE,
    "topic sub": _CONSUME,
    "group seek": _NO_CONSUMER_GROUPS, "group offset-delete": _NO_CONSUMER_GROUPS,
    "group create": "Groups are those of the pool: `multiraft group pool grow` adds some.",
    "group delete": _NO_CONSUMER_GROUPS, "group rm": _NO_CONSUMER_GROUPS,
    # nats.
    "stream": _TOPICS, "streams": _TOPICS, "stream ls": _TOPICS, "stream list": _TOPICS,
    "stream report": "Topics: `multiraft topic list`. Nodes and the groups that they lead: "
                     "`multiraft cluster status`.",
    "stream info": did_you_mean("topic describe"), "stream state": did_you_mean("topic offsets"),
    "stream add": did_you_mean("topic create"), "stream create": did_you_mean("topic create"),
    "stream rm": did_you_mean("topic delete"), "stream delete": did_you_mean("topic delete"),
    "stream edit": did_you_mean("topic alter"), "stream update": did_you_mean("topic alter"),
    "stream get": _CONSUME, "stream view": _CONSUME, "stream purge": _PURGE,
    "stream backup": _BACKUP, "stream restore": _BACKUP, "account backup": _BACKUP,
    "stream cluster": _LEADERS,
    "consumer add": _NO_CONSUMER_GROUPS, "consumer ls": _NO_CONSUMER_GROUPS,
    "consumer list": _NO_CONSUMER_GROUPS, "consumer info": _NO_CONSUMER_GROUPS,
    "consumer report": _NO_CONSUMER_GROUPS, "consumer rm": _NO_CONSUMER_GROUPS,
    "consumer next": _CONSUME, "consumer sub": _CONSUME,
    "server": _STATUS, "server report": _STATUS, "server list": _STATUS, "server ls": _STATUS,
    "server info": did_you_mean("node describe"), "server check": _STATUS,
    "server ping": _STATUS, "rtt": _STATUS, "account": _STATUS,
    "server run": did_you_mean("dev up"),
    # etcdctl.
    "member": _NODES, "member list": _NODES, "member add": _JOIN,
    "member promote": _NODE_OF_GROUP, "member remove": did_you_mean("node remove"),
    "group add": _JOIN, "group remove": _NODE_OF_GROUP,
    "endpoint": _STATUS, "endpoint status": _STATUS, "endpoint health": _STATUS,
    "endpoint hashkv": did_you_mean("node scrub"),
    "move-leader": _LEADERS, "alarm": _STATUS, "check": _STATUS, "check perf": _BENCH,
    "defrag": "No file of a node needs that. " + _SIZES,
    # kcat.
    "kcat": "Reading: `multiraft consume TOPIC`. Writing: `multiraft produce TOPIC`. Listing: "
            "`multiraft topic list`.",
    "-C": _CONSUME, "-P": _PRODUCE, "-Q": did_you_mean("topic offsets"),
    "-L": "Nodes: `multiraft cluster status`. Topics: `multiraft topic list`.",
    # Options.
    "-b": _CHOICE, "-s": _CHOICE, "-X": _CHOICE, "--context": _CHOICE, "--profile": _CHOICE,
    "--command-config": _CHOICE,
    "-t": "A topic is named without an option: `multiraft consume TOPIC`.",
    "--topic": "A topic is named without an option: `multiraft topic describe TOPIC`.",
    "-g": _NO_CONSUMER_GROUPS, "--group": _NO_CONSUMER_GROUPS,
    "--consumer-group": _NO_CONSUMER_GROUPS,
    "-w": "To refresh: `multiraft cluster status --watch`. For programs: --json.",
    "-o": "For programs: --json.", "--output": "For programs: --json.",
    "--write-out": "For programs: --json.", "--format": "For programs: --json.",
    "-j": "For programs: --json.",
    "--user": _NO_USERS, "--password": _NO_USERS, "--sasl-mechanism": _NO_USERS,
    "topic list -r": "To choose by pattern: `multiraft topic list` and grep.",
    "topic list --regex": "To choose by pattern: `multiraft topic list` and grep.",
    "topic list --detailed": did_you_mean("topic describe"),
    "topic list -d": did_you_mean("topic describe"),
    "topic describe -a": "Leave it out: all that is known is always shown.",
    "topic describe -p": "Leave it out: partitions are always shown.",
    "topic describe --print-partitions": "Leave it out: partitions are always shown.",
    "dev logs -c": "The node is named without an option: `multiraft dev logs 2`.",
}

#: Rows of one word without options, which a misspelt first word may mean.
FIRST_WORDS = tuple(row for row in HINTS if " " not in row and not row.startswith("-"))

#: The words and the options of each row, and its sentence; the longest rows come first.
_ROWS = sorted((([word for word in row.split() if not word.startswith("-")],
                 {word for word in row.split() if word.startswith("-")}, sentence)
                for row, sentence in HINTS.items()), key=lambda row: -len(row[0]) - len(row[1]))


def of_command(typed: Sequence[str], known: int) -> str | None:
    """Return the sentence for a command that does not exist; None = no row is about it.

    ``typed``: the words after ``multiraft``, of which the first ``known`` name a group of commands.
    O(rows * words), of which at most ``WORDS_MAX`` are compared."""
    typed = typed[:WORDS_MAX]
    words = [word.lower().removesuffix(_SCRIPT) for word in typed if not word.startswith("-")]
    options = {word.partition("=")[0] for word in typed if word.startswith("-")}
    for first, needed, sentence in _ROWS:
        if len(first) > known and words[:len(first)] == first and options >= needed:
            return sentence
    return None


def of_option(command: Sequence[str], option: str) -> str | None:
    """Return the sentence for an option that ``command`` (its words) does not have; None = no row
    is about it. O(rows)."""
    for first, needed, sentence in _ROWS:
        if needed == {option} and list(command[:len(first)]) == first:
            return sentence
    return None
