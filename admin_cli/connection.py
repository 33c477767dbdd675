"""The command's access to a cluster: the one place that knows the client library's types.

Contract.  Commands get a client from `open_session` and ask it through the functions here, which
return this module's own small values; `explain` turns the client's errors into `CommandFailed`.
Tests put a fake client behind `Session.connect`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from admin_cli import leaderless
from admin_cli.failures import Ambiguous, CommandFailed, Incomplete, NotFound, Unreachable
from admin_cli.servers import Servers, TlsOptions
from admin_cli.session import Connect, Session
from admin_cli.values.text import nearest, shell_word
from admin_cli.values.times import At
from multiraft.client import blocking, texts
from multiraft.errors import MultiRaftError
from multiraft.wire import errors as wire
from multiraft.wire import plans

#: Time for one node's answer: a node that is up answers within a round trip and a scan of its
#: groups.
NODE_TIMEOUT_MS = 2_000
#: Nodes that may have a replica of a group to recover are asked for so long, with this pause: a
#: node that restarts is often back by then.
RECOVERY_TIMEOUT_S = 3.0
RETRY_S = 0.2
#: Topics that a name which does not exist is compared with, the first by name: one page of a node.
TOPICS_COMPARED_MAX = 1_000
_TOPIC_COMMANDS = "`multiraft topic list` shows the topics; `multiraft topic create` makes one."
#: Names of topics that nodes make for themselves begin so.
INTERNAL_PREFIX = "__"
#: States that an operator wants of a node that is not alive, in words.
STATE_WORDS = {plans.DRAINING: "draining", plans.MAINTENANCE: "in maintenance"}


def open_client(addresses: Sequence[str], tls: TlsOptions | None = None) -> blocking.Client:
    """Return a client of the cluster behind ``addresses``; it connects at its first request."""
    settings = None if tls is None else blocking.TlsSettings(tls.ca, tls.certificate, tls.key,
                                                             tls.server_name)
    return blocking.Client(list(addresses), client_id="multiraft-cli", tls=settings)


class PartitionRow(NamedTuple):
    """One partition; ``leader`` and offsets are None when no node could answer."""

    partition: int
    group: int
    leader: int | None
    start_offset: int | None
    end_offset: int | None
    leader_epoch: int | None = None


class TopicRow(NamedTuple):
    """One topic; ``partitions`` is their number."""

    name: str
    partitions: int


class GroupRow(NamedTuple):
    """One Raft group; ``leader`` None = it has none that could append at the moment."""

    group: int
    leader: int | None
    term: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]


@contextlib.contextmanager
def open_session(session: Session) -> Iterator[Any]:
    """Yield a client of the session's cluster. Errors of the client and the network leave as
    ``CommandFailed``, those of files unchanged."""
    servers = session.servers()
    connect = session.connect or functools.partial(open_client, tls=session.tls())
    try:
        with connect(servers.addresses) as client:
            try:
                yield client
            except wire.UnknownTopic as error:
                raise _unknown_topic(client, error) from error
            except (*_NOT_IN_TIME, wire.AmbiguousOutcome) as error:
                raise explain(error, servers, _leaderless(client, error)) from error
    except MultiRaftError as error:
        raise explain(error, servers) from error
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not (isinstance(error, _NETWORK)
                                                      or error.errno in _NETWORK_ERRNO):
            raise  # an error of a file or stream, not of the nodes
        raise explain(error, servers) from error


# -- questions and commands -------------------------------------------------------------------

def topics(client: Any) -> list[TopicRow]:
    """Return every topic, by name."""
    return sorted(TopicRow(row.name, row.partitions) for row in client.list_topics())


def topic_advice(missing: Sequence[str], known: Sequence[str]) -> str:
    """Return the advice for topics that do not exist: the names of ``known`` that were probably
    meant, and the commands that show and make topics.  Compares with ``TOPICS_COMPARED_MAX``
    names."""
    names = [*known[:TOPICS_COMPARED_MAX]]
    meant = dict.fromkeys(near for name in missing if (near := nearest(name, names)) is not None)
    return (f"Did you mean {' and '.join(meant)}?\n" if meant else "") + _TOPIC_COMMANDS


def _unknown_topic(client: Any, error: wire.UnknownTopic) -> NotFound:
    """Return the failure for a topic that does not exist. Its advice names a similar one if the
    cluster tells the names of its topics."""
    if error.topic is None:
        return NotFound(sentence(error), _TOPIC_COMMANDS)
    try:
        known = [row.name for row in client.list_topics(TOPICS_COMPARED_MAX)]
    except (MultiRaftError, OSError):  # the missing topic is the failure, not the missing advice
        known = []
    return NotFound(sentence(error), topic_advice([error.topic], known))


def create_topic(client: Any, name: str, count: int, replication_factor: int | None,
                 if_not_exists: bool, settings: dict[str, str]) -> bool:
    """Create a topic and return True. Return False when it exists and ``if_not_exists`` is set;
    without that raises ``TopicExists``."""
    try:
        client.create_topic(name, count, replication_factor or 0,
                            **({"settings": settings} if settings else {}))
    except wire.TopicExists:
        if not if_not_exists:
            raise
        return False
    return True


def partitions(client: Any, topic: str) -> list[PartitionRow]:
    """Return a topic's partitions with leaders and offsets, in order."""
    described = client.describe_topic(topic)
    return [PartitionRow(row.partition, row.group, row.leader or None, row.start_offset,
                         row.end_offset, row.leader_epoch) for row in described.partitions]


def offsets(client: Any, topic: str) -> dict[int, tuple[int, int]]:
    """Return first and next offset of each partition; its leader has confirmed them with a
    majority. Raises ``OffsetNotAvailable`` if a leader does not answer."""
    return {partition: (span.start_offset, span.end_offset)
            for partition, span in client.list_offsets(topic).items()}


def offsets_at(client: Any, topic: str, at: At) -> dict[int, int | None]:
    """Return the offset of the first record at or after a time in each partition; None = there is
    none."""
    return client.offsets_at(topic, at.ms)


def groups(client: Any, nodes: Sequence[Any] | None = None) -> list[GroupRow]:
    """Return every group of the pool and the metadata group, in order. ``nodes``: those of an
    answer to ``cluster_status``; None = they are asked for."""
    up = nodes_up(client.cluster_status().nodes if nodes is None else nodes)
    rows = [GroupRow(row.group, living_leader(row.leader, row.voters, up), row.term,
                     tuple(sorted(row.voters)), tuple(sorted(row.learners)))
            for row in client.group_list()]
    return sorted(rows, key=lambda row: row.group)


def nodes_up(nodes: Sequence[Any]) -> frozenset[int]:
    """Return the ids of the nodes that are up, of rows of an answer to ``cluster_status``."""
    return frozenset(node.id for node in nodes if node.state == "up")


def living_leader(leader: int, voters: Sequence[int], up: frozenset[int]) -> int | None:
    """Return the leader that a node believes in (0 = none) if it can append: it is up, and so is a
    majority of the voters. None otherwise.

    A node keeps the last leader that it heard of, also when that node is gone."""
    has_majority = 2 * sum(voter in up for voter in voters) > len(voters)
    return leader if leader in up and has_majority else None


def desired_states(client: Any) -> dict[int, str]:
    """Return node -> state that the operator wants, without nodes that are to be alive."""
    return dict(client.plan_request(plans.PlacementFacts()).desired_states)


def desired_states_if_known(client: Any) -> dict[int, str] | None:
    """Return node -> state that the operator wants, for display beside other facts, without nodes
    that are to be alive; None when the cluster cannot answer."""
    facts = placement_facts_if_known(client)
    return None if facts is None else dict(facts.desired_states)


def placement_facts_if_known(client: Any) -> plans.PlacementFactsReply | None:
    """Return the facts that plans are made from, for display beside others; None when the cluster
    cannot answer."""
    try:
        return client.plan_request(plans.PlacementFacts())
    except (MultiRaftError, blocking.NoNodeAnswered, OSError):
        return None


def group_transfer(client: Any, group: int, to: int) -> tuple[int, int]:
    """Transfer leadership of a group to node ``to`` (0 = any), and wait for it for a limited time.
    Return (present leader, its term)."""
    reply = client.group_transfer(group, to)
    return reply.leader, reply.term


def try_members(client: Any, found: Any, voters: tuple[int, ...],
                learners: tuple[int, ...]) -> None:
    """Start a change of members, and return without waiting for it. Ignore a refusal because of bad
    timing, or because another change came first: the caller polls."""
    with contextlib.suppress(wire.TimedOut, wire.LeaderUnknown, wire.AmbiguousOutcome):
        client.group_members(found.group, voters, learners, found.index)


def kind_of(found: Any, node: int) -> str:
    """Return the role of a member in a group, in words; "incoming" and "outgoing" during a joint
    configuration."""
    if node in found.voters:
        return "voter" if node in found.outgoing or not found.outgoing else "incoming voter"
    return "learner" if node in found.learners and node not in found.outgoing else "outgoing voter"


def members_json(found: Any) -> dict[str, Any]:
    """Return the members of a group as the JSON has them."""
    return {"group": found.group, "incarnation": found.incarnation, "leader": found.leader,
            "term": found.term, "last_index": found.last_index, "commit": found.commit,
            "configuration_index": found.index, "change_is_open": found.is_open,
            "voters": list(found.voters), "learners": list(found.learners),
            "outgoing": list(found.outgoing),
            "members": [row._asdict() for row in found.rows]}


def _all_replicas(client: Any, group: int) -> tuple[list[Any], list[int]]:
    """Return (replicas of a group, as all nodes report them; nodes that do not answer).

    A silent node is asked again within the bound, because a replica that is not found may be given
    up permanently. Bounded by ``RECOVERY_TIMEOUT_S`` and one round of ``NODE_TIMEOUT_MS`` each."""
    silent = {node.id: node.client_address for node in client.cluster_status().nodes}
    replicas: list[Any] = []
    deadline_s = time.monotonic() + RECOVERY_TIMEOUT_S
    while True:
        for node, address in [*silent.items()]:
            with contextlib.suppress(wire.RequestError):
                with contextlib.suppress(wire.LeaderUnknown, wire.NotLeader):  # without a replica
                    replicas.append(client.group_replica(group, address, NODE_TIMEOUT_MS))
                del silent[node]
        if not silent or time.monotonic() >= deadline_s:
            return replicas, [*silent]
        time.sleep(RETRY_S)


def recovery_report(client: Any, group: int) -> dict[str, Any]:
    """Return the surviving replicas of a group, as every node reports its own, and the best one as
    ``survivor``.

    The best one has the last term, then the last index (the order in which Raft compares logs);
    None if no undamaged replica answers."""
    replicas, unreachable = _all_replicas(client, group)
    incarnation = max((found.incarnation for found in replicas), default=0)
    replicas = [found for found in replicas if found.incarnation == incarnation]
    sound = [found for found in replicas if not found.quarantined]
    best = max(sound, key=lambda found: (found.last_term, found.last_index, -found.node),
               default=None)
    voters = {*best.voters, *best.outgoing} if best is not None else set()
    answering = voters & {found.node for found in sound}
    return {
        "group": group, "present_incarnation": incarnation,
        "survivor": best.node if best is not None else None,
        "last_term": best.last_term if best is not None else 0,
        "last_index": best.last_index if best is not None else 0,
        "replicas": [{"node": found.node, "state": "damaged" if found.quarantined else "sound",
                      "last_term": found.last_term, "last_index": found.last_index,
                      "commit": found.commit} for found in replicas],
        "unreachable": unreachable, "missing": sorted(voters - answering),
        "has_majority": bool(voters) and len(answering) > len(voters) // 2,
        "partitions": _partitions_of(client, group)}


def _partitions_of(client: Any, group: int) -> int:
    """Return the number of partitions that have records in a group."""
    count = 0
    for topic in client.list_topics():
        count += sum(part.group == group for part in client.topic_metadata(topic.name).partitions)
    return count


def recover(client: Any, report: dict[str, Any]) -> int:
    """Recover a group by force from the ``survivor`` that a ``recovery_report`` names. Return the
    new incarnation. Raises ``CommandFailed`` if a majority answers."""
    if report["has_majority"]:
        raise CommandFailed(f"group {report['group']} needs no recovery: a majority of its voters "
                            "answers.", "If it has no leader, wait for the election to end.")
    return client.group_recover(report["group"], report["survivor"],
                                report["present_incarnation"] + 1).incarnation


def is_internal(topic: str) -> bool:
    """Return True for a topic that nodes make for themselves, such as ``__metrics``."""
    return topic.startswith(INTERNAL_PREFIX)


def require_partition(topic: str, count: int, partition: int | None) -> None:
    """Return if a topic of ``count`` partitions has the partition, None = any. Raises ``NotFound``
    otherwise."""
    if partition is not None and partition >= count:
        raise NotFound(f"topic {topic} has no partition {partition}; its partitions are 0 to "
                       f"{count - 1}.",
                       f"`multiraft topic describe {topic}` shows them.")


def require_offset(topic: str, row: PartitionRow, offset: int, is_reset: bool = False) -> None:
    """Return if the partition may have the offset or it is the next one. Raises ``CommandFailed``
    if it certainly has not; with ``is_reset`` a deleted offset is accepted."""
    if row.start_offset is None or row.end_offset is None:
        return
    if offset < row.start_offset:
        if is_reset:
            return
        gap = blocking.Gap(topic, row.partition, offset, row.start_offset)
        raise CommandFailed(f"{gap}, and {row.end_offset} is the next.",
                            how_to_pass(topic, row.partition, row.start_offset))
    if not row.start_offset <= offset <= row.end_offset:
        raise CommandFailed(f"offset {offset} is out of range: partition {row.partition} of "
                            f"{topic} {offsets_in_words(row.start_offset, row.end_offset)}.",
                            "Use --from earliest or --from latest.")


def offsets_in_words(start_offset: int, end_offset: int) -> str:
    """Return the offsets of a partition as the predicate of a sentence."""
    held = (f"has the offsets {start_offset} to {end_offset - 1}" if end_offset > start_offset
            else "is empty")
    return f"{held}, and {end_offset} is the next"


def how_to_pass(topic: str, partition: int, log_start: int) -> str:
    """Return the commands that read a partition without its deleted records."""
    return (f"Read what is left of it:    multiraft consume {topic} --partition {partition} --from "
            f"{log_start}\n"
            f"Read what is left of all:   multiraft consume {topic} --from earliest\n"
            f"Pass over what was deleted: --offset-reset earliest")


def node_answers(connect: Connect, address: str) -> bool:
    """Return True if the node at ``address`` answers a status request, False on any error."""
    try:
        with connect((address,)) as client:
            client.cluster_status()
    except (MultiRaftError, OSError):
        return False
    return True


def node_caught_up(connect: Connect, addresses: Sequence[str], address: str) -> bool:
    """Return True if the node at ``address`` has the metadata that any of ``addresses`` has; False
    also if it does not answer."""
    try:
        with connect(addresses) as client:
            client.catch_up()
            client.node_status(address)
    except (MultiRaftError, OSError):
        return False
    return True


def node_ids(connect: Connect, addresses: Sequence[str]) -> set[int]:
    """Return the ids of the nodes that the cluster knows, up or not; empty when no node answers."""
    try:
        with connect(addresses) as client:
            return {node.id for node in client.cluster_status().nodes}
    except (MultiRaftError, OSError):
        return set()


def why_not_ready(connect: Connect, address: str) -> str:
    """Return the reason why the node at ``address`` is not ready, in its own words; empty if it
    reports that it knows every leader and every replica on it has caught up."""
    try:
        with connect((address,)) as client:
            status = client.node_status(address, NODE_TIMEOUT_MS).status
    except (MultiRaftError, OSError) as error:
        return f"it does not answer: {error}"
    return "" if status.get("ready") else status.get("not_ready") or "it does not say why"


def leaderless_groups(connect: Connect, addresses: Sequence[str], total: int) -> tuple[int, int]:
    """Return (number of groups without a known leader, number of groups). That is at least
    ``total``, more after the pool has grown; without an answer all are leaderless."""
    try:
        with connect(addresses) as client:
            client.catch_up()
            rows = groups(client)
    except (MultiRaftError, OSError):
        return total, total
    total = max(total, len(rows))
    return total - sum(row.leader is not None for row in rows), total


# -- errors -------------------------------------------------------------------------------------

_UNREACHABLE = (OSError, wire.ProtocolError, wire.ConnectionRefused)
#: Refusals that the client repeats: each means that no node could do it within the client's time,
#: mostly because a group had no leader.
_NOT_IN_TIME = (wire.TimedOut, wire.LeaderUnknown, wire.NotLeader, wire.OffsetNotAvailable,
                wire.Quarantined, wire.ShuttingDown, wire.StaleMetadata, wire.QueueFull, wire.Moved)

#: Errors of the network that the client passes on: those of names that cannot be looked up.
_NETWORK = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
_NETWORK_ERRNO = (errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
                  errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.EPROTO)


def _leaderless(client: Any, error: Exception) -> list[str]:
    """Return sentences about the groups that ``error`` names, or else the metadata group, without
    those that have a leader. Empty if the cluster does not tell."""
    named = {int(group) for group in re.findall(r"\bgroup (\d+)\b", str(error))}
    try:
        nodes = {node.id: node for node in client.cluster_status().nodes}
        rows = groups(client, [*nodes.values()])
    except (MultiRaftError, OSError):
        return []
    return [leaderless.sentence(
                "the metadata group, group 0, has no leader" if row.group == 0 else
                f"group {row.group} has no leader", "its", row.voters, nodes)
            for row in rows if row.group in (named or {0}) and row.leader is None]


def explain(error: Exception, servers: Servers, lost: Sequence[str] = ()) -> CommandFailed:
    """Return the ``CommandFailed`` for an error of the client: its effect, the remedy, and an exit
    code. ``lost``: sentences about groups without a leader, which caused it."""
    text = sentence(error)
    if lost and isinstance(error, _NOT_IN_TIME):
        return Unreachable(" ".join(lost), leaderless.remedy(servers))
    if isinstance(error, blocking.UnreadableBatch):
        return CommandFailed(text, f"Continue after it: multiraft consume {error.topic} "
                                   f"--partition {error.partition} --from "
                                   f"{error.next_offset}\nSkip such batches: --skip-unreadable")
    if isinstance(error, wire.OffsetOutOfRange) and error.topic is not None \
            and error.partition is not None and (error.offset or 0) < error.detail.start_offset:
        return Incomplete(text, how_to_pass(error.topic, error.partition,
                                            error.detail.start_offset))
    if isinstance(error, wire.AmbiguousOutcome):
        return Ambiguous(f"the outcome is not known: {text}", "\n".join(
            ["Check whether the request was applied before you repeat it.", *lost,
             *([leaderless.remedy(servers)] if lost else [])]))
    if isinstance(error, (wire.UnknownTopic, wire.UnknownPartition)):
        return NotFound(text, _TOPIC_COMMANDS)
    if isinstance(error, wire.UnknownNode):
        return NotFound(text, "`multiraft node list` shows the nodes.")
    if isinstance(error, blocking.NoNodeAnswered):
        return Unreachable(_unanswered(error, servers),
                           _how_to_reach(servers, " ".join(error.errors.values())))
    if isinstance(error, _UNREACHABLE):
        return Unreachable(f"no answer from {', '.join(servers.addresses)} (from "
                           f"{servers.source}): {text}", _how_to_reach(servers, text))
    advice = _ADVICE.get(type(error), "")
    return (Unreachable if isinstance(error, _NOT_IN_TIME) else CommandFailed)(text, advice)


#: Error -> its remedy.
_ADVICE: dict[type[Exception], str] = {
    wire.TopicExists: "Choose another name, delete that topic first, or accept it: "
                      "--if-not-exists",
    wire.InvalidTopicName: "A topic name has 1 to 249 of A-Z a-z 0-9 . _ - and is not . or ..",
    wire.InvalidSetting: "`multiraft help settings` has the names and values.",
    wire.TimedOut: "`multiraft cluster status` shows which nodes are up.",
    wire.LeaderUnknown: "`multiraft cluster status` shows which nodes are up and which groups have "
                        "no leader.",
    wire.OffsetNotAvailable: "`multiraft cluster status` shows which nodes are up and which groups "
                             "have no leader.",
    wire.StorageFull: "Free space on the node's disk; appends resume by themselves.",
    wire.QueueFull: "The node is busy; try again.",
    wire.ShuttingDown: "Another node takes over in a moment; try again.",
    wire.PlanActive: "`multiraft rebalance status` shows its progress.",
    wire.StalePlan: "Make a new plan: multiraft rebalance plan",
    wire.Unsupported: "The node is of another release than this command.",
}


def _unanswered(error: blocking.NoNodeAnswered, servers: Servers) -> str:
    """Return the sentence about addresses of which none answered, with the result of each; one
    result of all of them is said once."""
    whys = {*error.errors.values()}
    if len(whys) == 1:
        return sentence(f"no answer from {', '.join(error.errors)} (from {servers.source}): "
                        f"{whys.pop()}")
    return sentence(f"no answer from any address (from {servers.source}): "
                    f"{texts.by_reason(error.errors)}")


#: Part of an error of TLS -> its meaning and remedy; the first one that fits.
_TLS_ADVICE = (
    ("CERTIFICATE_VERIFY_FAILED", "The node speaks TLS, and its certificate is not believed: name "
     "the CA with --tls-ca, and the name in the certificate with --tls-server-name."),
    ("CERTIFICATE_REQUIRED", "The node wants a certificate of this client: --tls-cert and "
     "--tls-key."),
    ("[SSL", "The node does not speak TLS at this address, or refuses the TLS of this client.\n"
     "Without TLS: leave out --tls and the other TLS options, and unset MULTIRAFT_TLS...\n"
     "With TLS:    multiraft help tls"),
)


def _how_to_reach(servers: Servers, why: str) -> str:
    """Return the remedy for nodes that gave no answer, because of ``why``."""
    for part, advice in _TLS_ADVICE:
        if part in why:
            return advice
    if servers.dev_directory is not None:
        directory = shell_word(servers.dev_directory)
        return (f"See what runs: multiraft dev status --dir {directory}\n"
                f"Start it:      multiraft dev up --dir {directory}")
    return "Is the cluster up? Are the addresses its client addresses?"


def sentence(error: Exception | str) -> str:
    """Return the error's text, or a text, as a sentence."""
    text = str(error) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
