"""The world of the golden scripts: nodes whose disk, network, clock and leases the script moves.

Each public ``do_...`` method is a verb and its docstring the help.  Nothing happens by itself: a
write is durable when ``fsync`` says so, a message arrives when ``deliver`` says so, leases are what
``lease`` made them.  Text comes from ``multiraft.raft.describe`` alone.
"""

from __future__ import annotations

import random

from multiraft.errors import ProposalError
from multiraft.raft import describe, election
from multiraft.raft.config import RaftConfig
from multiraft.raft.log_state import NullLogState
from multiraft.raft.memory_storage import MemoryStore
from multiraft.raft.messages import Append, Message
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Envelope, Ready
from multiraft.types import Configuration, EntryKind
from tests.datadriven import Command, ScriptError
from tests.raft.health_verbs import HealthVerbs
from tests.raft.member_verbs import MemberVerbs
from tests.raft.snapshot_verbs import SnapshotVerbs

#: Bound on ``settle``.
ROUNDS_MAX = 2000


class ScriptTail(NullLogState):
    """Tail state that refuses the entries named by the script."""

    def __init__(self) -> None:
        self.refused: dict[int, str] = {}

    def check_entry(self, entry) -> str:
        return self.refused.get(entry.index, "")


class Node:
    """One node of the script."""

    def __init__(self, id_: int):
        self.id = id_
        self.store = MemoryStore()
        self.core: MultiRaft | None = None
        self.life = 0
        self.tails: dict[int, ScriptTail] = {}
        self.supports: list[int] = []
        self.images: dict[int, tuple] = {}  # group -> a snapshot that was taken


class Interaction(HealthVerbs, MemberVerbs, SnapshotVerbs):
    """The verbs."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.wire: list[tuple[int, int, Message]] = []
        self.held: list[tuple[int, int, Message]] = []
        self.cut: list[tuple[int, int]] = []
        self.now_ms = 0
        self.lines: list[str] = []
        self.is_quiet = False
        self.busy: list[int] = []

    def execute(self, command: Command) -> list[str]:
        """Run one command; what it prints."""
        verb = getattr(self, f"do_{command.verb.replace('-', '_')}", None)
        if verb is None:
            raise ScriptError(f"line {command.line}: no verb {command.verb!r}")
        self.lines = []
        was_quiet = self.is_quiet
        answer = verb(command)
        for node in self.alive():
            node.core._check()
        if answer is not None:
            return answer
        if was_quiet:
            return ["ok"]
        return self.lines or ["(nothing happens)"]

    # ---- the driver ---------------------------------------------------------------------------

    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.core is not None]

    def drain(self, node: Node) -> None:
        while ready := node.core.ready(with_writes=node.id not in self.busy):
            self.obey(node, ready)

    def obey(self, node: Node, ready: Ready) -> None:
        self.lines += [describe.event(node.id, event) for event in ready.events]
        if ready.writes is not None:
            self.lines += describe.writes(node.id, ready.writes)
            node.store.stage(ready.writes)
        for envelope in ready.messages:
            self.transmit(node, envelope)
        for committed in ready.committed:
            self.lines.append(describe.committed(node.id, committed))
            node.core.applied(committed.group, committed.last)
        self.lines += [describe.read_ready(node.id, read) for read in ready.reads]

    def transmit(self, node: Node, envelope: Envelope) -> None:
        message = envelope.message
        line = describe.message(node.id, envelope.to, message)
        if (node.id, envelope.to) in self.cut or self.nodes[envelope.to].core is None:
            self.lines.append(line + "  (lost)")
            return
        if isinstance(message, Append) and message.last_index > message.prev_index:
            entries = node.store.entries(message.group, message.prev_index + 1,
                                         message.last_index)
            assert entries is not None, f"{line}: the range is gone"
            message = message._replace(entries=entries)
        self.lines.append(line)
        self.wire.append((node.id, envelope.to, message))

    def complete_write(self, node: Node) -> None:
        sequence = node.store.execute()
        node.core.written(sequence)
        self.drain(node)

    def boot(self, node: Node) -> None:
        node.life += 1
        node.core = MultiRaft(node.id, self.config, node.store,
                              random.Random(self.seed * 100 + node.id), self.now_ms)
        for group in node.store.groups():
            tail = node.tails.setdefault(group, ScriptTail())
            node.core.add_group(group, node.store.incarnation(group), node.store.restored(group),
                                tail)

    # ---- set-up -------------------------------------------------------------------------------

    def do_cluster(self, command: Command) -> list[str] | None:
        """cluster nodes=3 groups=1 seed=1 [replicas=R] [append=BYTES] [window=BYTES]
        [catch_up=BYTES] [catch_up_window=BYTES] [uncommitted=BYTES] [reexamine=N] [lag=N]
        [relaxed=1]: nodes that support and reach each other."""
        nodes = command.number("nodes", 3)
        self.seed = command.number("seed", 1)
        uncommitted = command.number("uncommitted", 1 << 16)
        append = command.number("append", min(4096, uncommitted))
        window = command.number("window", min(8192, uncommitted))
        catch_up = command.number("catch_up", append)
        self.config = RaftConfig(
            append_bytes_max=append, peer_window_bytes=window,
            catch_up_append_bytes=catch_up,
            catch_up_window_bytes=command.number("catch_up_window",
                                                 command.number("catch_up", window)),
            uncommitted_bytes_max=uncommitted,
            liveness_checks_per_round_max=command.number("reexamine", 256),
            promotion_lag_entries_max=command.number("lag", 2),
            accept_lost_entries=bool(command.number("relaxed", 0)))
        self.nodes = {id_: Node(id_) for id_ in range(1, nodes + 1)}
        replicas = command.number("replicas", nodes)
        for group in range(1, command.number("groups", 1) + 1):
            voters = tuple(sorted((group - 1 + k) % nodes + 1 for k in range(replicas)))
            for id_ in voters:
                self.nodes[id_].store.create_group(group, 1, Configuration(voters))
        for node in self.nodes.values():
            self.boot(node)
        for node in self.nodes.values():
            for other in self.nodes.values():
                if other is not node:
                    node.core.connected(other.id)
                    self.lease(node, "granted", other)
                    self.lease(node, "held", other)
        for node in self.nodes.values():
            self.drain(node)
        return ["ok"]

    def do_quiet(self, command: Command) -> list[str]:
        """quiet: commands print ``ok`` only, until ``loud``."""
        self.is_quiet = True
        return []

    def do_loud(self, command: Command) -> list[str]:
        """loud: commands print what happens."""
        self.is_quiet = False
        return []

    def do_elect(self, command: Command) -> None:
        """elect n1 g1 [now]: campaign and settle."""
        self.do_campaign(command)
        self.do_settle(command)

    # ---- inputs -------------------------------------------------------------------------------

    def do_campaign(self, command: Command) -> None:
        """campaign n1 g1 [now]: ask for pre-votes, or with ``now`` for votes."""
        node = self.nodes[command.node()]
        group = node.core._groups[command.group()]
        if "now" in command.arguments:
            election.campaign(group)
        else:
            election.start_pre_vote(group)
        self.drain(node)

    def do_propose(self, command: Command) -> list[str] | None:
        """propose n1 g1 abc x*100: append entries, one per word, in one round; ``x*100`` is a
        hundred times x."""
        node = self.nodes[command.node()]
        for word in command.arguments[2:]:
            if "*" in word:
                word = word.split("*")[0] * int(word.split("*")[1])
            try:
                proposed = node.core.propose(command.group(), EntryKind.METADATA, word.encode())
            except ProposalError as error:
                self.lines.append(f"refused: {type(error).__name__}: {error}")
                continue
            self.lines.append(f"n{node.id} g{command.group()} accepts {proposed.index}"
                              f"@{proposed.term}")
        self.drain(node)

    def do_transfer(self, command: Command) -> None:
        """transfer n1 g1 n2: n1 hands g1 to n2."""
        node = self.nodes[command.node()]
        try:
            node.core.transfer(command.group(), command.node(2))
        except ProposalError as error:
            self.lines.append(f"refused: {error}")
        self.drain(node)

    def do_room(self, command: Command) -> None:
        """room n1 none|again: all nodes that n1 supports receive the state of its disk."""
        node, full = self.nodes[command.node()], command.arguments[1] == "none"
        for other in self.alive():
            if other is not node:
                other.core.peer_full(node.id, full)
                self.drain(other)

    def do_fits(self, command: Command) -> list[str]:
        """fits n1 g1: whether n1 would take records for g1."""
        return [str(self.nodes[command.node()].core.records_fit(command.group())).lower()]

    def do_make_way(self, command: Command) -> list[str] | None:
        """make-way n1 g1: the disk of n1 has no room for records."""
        node = self.nodes[command.node()]
        try:
            under_way = node.core.shed_leadership(command.group())
        except ProposalError as error:
            self.lines.append(f"refused: {error}")
            return None
        self.drain(node)
        return None if under_way else [f"n{node.id} keeps g{command.group()}"]

    def do_resign(self, command: Command) -> None:
        """resign n1 g1 why: give up leadership."""
        node = self.nodes[command.node()]
        node.core.resign(command.group(), " ".join(command.arguments[2:]))
        self.drain(node)

    def do_contradict(self, command: Command) -> list[str]:
        """contradict n1 g1 index=3: the tail there will find fault with that entry."""
        index = command.number("index", 0)
        self.nodes[command.node()].tails[command.group()].refused[index] = "unexpected offset"
        return ["ok"]

    def do_recreate(self, command: Command) -> list[str]:
        """recreate n1 g1 incarnation=2: the group is deleted and created again on that node."""
        node, group = self.nodes[command.node()], command.group()
        voters = node.core.status.of(group).configuration
        node.core.remove_group(group)
        for images in (node.store._memory, node.store._disk):
            del images[group]
        node.store.create_group(group, command.number("incarnation", 2), voters)
        node.core.add_group(group, node.store.incarnation(group), node.store.restored(group),
                            NullLogState())
        self.drain(node)
        return ["ok"]

    def do_remove(self, command: Command) -> list[str]:
        """remove n1 g1: the replica is gone."""
        node, group = self.nodes[command.node()], command.group()
        node.core.remove_group(group)
        for images in (node.store._memory, node.store._disk):
            del images[group]
        return ["ok"]

    def do_create(self, command: Command) -> None:
        """create n3 g1: an empty replica, with the configuration that the others have."""
        node, group = self.nodes[command.node()], command.group()
        other = next(other for other in self.alive() if group in other.core.status.groups())
        status = other.core.status.of(group)
        node.store.create_group(group, status.incarnation, status.configuration)
        node.core.add_group(group, status.incarnation, node.store.restored(group), NullLogState())
        self.drain(node)

    # ---- disk ---------------------------------------------------------------------------------

    def do_fsync(self, command: Command) -> None:
        """fsync n1: the oldest write of that node becomes durable."""
        node = self.nodes[command.node()]
        if not node.store.pending():
            self.lines.append(f"n{node.id} has nothing to write")
            return
        self.complete_write(node)

    def do_disk(self, command: Command) -> list[str]:
        """disk n1 busy|idle: a busy disk takes no further write, so that they pile up."""
        node = self.nodes[command.node()]
        if command.arguments[1] == "busy":
            self.busy.append(node.id)
            return ["ok"]
        self.busy.remove(node.id)
        self.drain(node)
        return self.lines or ["ok"]

    def do_crash(self, command: Command) -> list[str]:
        """crash n1: power is lost; unsynced writes and messages on the way are gone."""
        node = self.nodes[command.node()]
        lost = node.store.crash()
        node.core = None
        self.wire = [item for item in self.wire if node.id not in item[:2]]
        for other in self.alive():
            other.core.disconnected(node.id)
        return [f"n{node.id} lost {lost} unsynced write{'' if lost == 1 else 's'}"]

    def do_restart(self, command: Command) -> None:
        """restart n1: boot from the disk; connections are up, leases as ``lease`` says."""
        node = self.nodes[command.node()]
        self.boot(node)
        for other in self.alive():
            if other is not node:
                node.core.connected(other.id)
                other.core.connected(node.id)
                self.drain(other)
        self.drain(node)
        for group in node.core.status.groups():
            self.lines.append(describe.status(node.id, node.core.status.of(group)))

    # ---- network ------------------------------------------------------------------------------

    def take(self, command: Command) -> list[tuple[int, int, Message]]:
        """Messages on the wire that match from=, to=, group=, type=, at most count=."""
        taken, left = [], []
        from_, to = command.optional_node("from"), command.optional_node("to")
        if command.arguments:
            to = command.node()
        for item in self.wire:
            wanted = (from_ in (0, item[0]) and to in (0, item[1])
                      and len(taken) < command.number("count", ROUNDS_MAX)
                      and command.options.get("type", type(item[2]).__name__)
                      == type(item[2]).__name__
                      and command.options.get("group") in (
                          None, f"g{getattr(item[2], 'group', -1)}"))
            (taken if wanted else left).append(item)
        self.wire = left
        return taken

    def do_deliver(self, command: Command) -> None:
        """deliver [n2] [from=n1] [to=n2] [group=g1] [type=Append] [count=1]: those messages arrive,
        oldest first; what they cause stays on the wire."""
        for from_, to, message in self.take(command):
            self.arrive(from_, to, message)

    def arrive(self, from_: int, to: int, message: Message) -> None:
        node = self.nodes[to]
        if node.core is not None and (from_, to) not in self.cut:
            node.core.step(from_, message)
            self.drain(node)

    def do_drop(self, command: Command) -> None:
        """drop ...: those messages are lost."""
        self.lines += ["lost: " + describe.message(*item) for item in self.take(command)]

    def do_duplicate(self, command: Command) -> None:
        """duplicate ...: those messages are on the wire twice."""
        taken = self.take(command)
        self.wire += [*taken, *taken]
        self.lines += ["twice: " + describe.message(*item) for item in taken]

    def do_hold(self, command: Command) -> None:
        """hold ...: those messages are delayed until ``release``."""
        taken = self.take(command)
        self.held += taken
        self.lines += ["held: " + describe.message(*item) for item in taken]

    def do_release(self, command: Command) -> None:
        """release: what was held is on the wire again."""
        self.wire += self.held
        self.lines += ["released: " + describe.message(*item) for item in self.held]
        self.held = []

    def do_inject(self, command: Command) -> None:
        """inject from=n1 to=n3 g1 append prev=1@1 commit=3 term=2: a message that no node sent."""
        from_, to = command.optional_node("from"), command.optional_node("to")
        prev, term = (int(part) for part in command.options["prev"].split("@"))
        self.arrive(from_, to, Append(command.group(0), 1, command.number("term", 1), prev, term,
                                      prev, command.number("commit", 0)))

    def do_cut(self, command: Command) -> list[str]:
        """cut n1 n2: nothing passes from n1 to n2 (one way)."""
        self.cut.append((command.node(0), command.node(1)))
        return ["ok"]

    def do_mend(self, command: Command) -> list[str]:
        """mend: all links work."""
        self.cut = []
        return ["ok"]

    def do_disconnect(self, command: Command) -> None:
        """disconnect n1 n2: their connection breaks; what was on it is lost."""
        pair = (command.node(0), command.node(1))
        self.wire = [item for item in self.wire if not (item[0] in pair and item[1] in pair)]
        for one, other in (pair, pair[::-1]):
            self.nodes[one].core.disconnected(other)
            self.drain(self.nodes[one])

    def do_connect(self, command: Command) -> None:
        """connect n1 n2: they have a new connection."""
        pair = (command.node(0), command.node(1))
        for one, other in (pair, pair[::-1]):
            self.nodes[one].core.connected(other)
            self.drain(self.nodes[one])

    # ---- time and leases ----------------------------------------------------------------------

    def do_tick(self, command: Command) -> None:
        """tick 500: that many milliseconds pass, for every node or those named."""
        ms = int(command.arguments[-1])
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            due = [deadline for node in self.alive()
                   if (deadline := node.core.next_deadline_ms()) is not None]
            self.now_ms = max(self.now_ms, min([end_ms, *due]))
            for node in self.alive():
                node.core.tick(self.now_ms)
                self.drain(node)

    def do_run(self, command: Command) -> None:
        """run 500: that time passes, and everything is written and delivered as soon as it is
        there."""
        end_ms = self.now_ms + int(command.arguments[-1])
        while True:
            self.do_settle(command)
            due = [deadline for node in self.alive()
                   if (deadline := node.core.next_deadline_ms()) is not None]
            if not due or min(due) > end_ms:
                break
            self.now_ms = max(self.now_ms, min(due))
            for node in self.alive():
                node.core.tick(self.now_ms)
                self.drain(node)
        self.now_ms = end_ms
        for node in self.alive():
            node.core.tick(end_ms)

    def lease(self, node: Node, what: str, other: Node) -> None:
        core = node.core
        if what == "granted":
            core.lease_granted(other.id, other.life)
        elif what == "withdrawn":
            core.lease_withdrawn(other.id)
        elif what == "held":
            core.lease_held(other.id, other.life)
        elif what == "lost":
            core.lease_lost(other.id)
        else:
            raise ScriptError(f"no lease event {what!r}")

    def do_lease(self, command: Command) -> None:
        """lease n1 held|lost|granted|withdrawn n2: what n1 finds out about n2."""
        node = self.nodes[command.node()]
        self.lease(node, command.arguments[1], self.nodes[command.node(2)])
        self.drain(node)

    def do_leases(self, command: Command) -> None:
        """leases n1 up|down [n2 ...]: all leases between n1 and the others (or those named), both
        ways, as seen from both ends."""
        node = self.nodes[command.node()]
        named = [self.nodes[int(word[1:])] for word in command.arguments[2:]]
        up = command.arguments[1] == "up"
        for other in named or [other for other in self.nodes.values() if other is not node]:
            for one, two in ((node, other), (other, node)):
                if one.core is not None:
                    self.lease(one, "granted" if up else "withdrawn", two)
                    self.lease(one, "held" if up else "lost", two)
                    self.drain(one)

    def do_digest(self, command: Command) -> None:
        """digest n1 n2: n1 compares n2's digest with what it believes; a difference is reported to
        n1's core as liveness does after two in a row."""
        node, other = self.nodes[command.node()], self.nodes[command.node(1)]
        same = other.core.status.leading_digest(node.id) == node.core.status.followed_digest(
            other.id
        )
        self.lines.append("digests agree" if same else "digests differ")
        if not same:
            node.core.digest_mismatch(other.id)
            self.drain(node)

    def do_lease_once(self, command: Command) -> list[str]:
        """lease-once n1 withdrawn n2: as ``lease``, and no round yet."""
        self.lease(self.nodes[command.node()], command.arguments[1], self.nodes[command.node(2)])
        return ["ok"]

    def do_rounds(self, command: Command) -> None:
        """rounds n1: rounds until nothing is pending, each with the timers it armed."""
        node = self.nodes[command.node()]
        while True:
            pending = bool(node.core._peers.pending)
            self.obey(node, node.core.ready())
            timers = [f"g{group}" for group in node.core.status.groups()
                      if not node.core.status.of(group).quiesced]
            self.lines.append(f"timers: {' '.join(timers) or 'none'}")
            if not pending:
                return

    def do_announce(self, command: Command) -> None:
        """announce n4 n1: n4 hears the version of n1's list of led groups."""
        node, other = self.nodes[command.node()], self.nodes[command.node(1)]
        node.core.peer_leading_version(other.id, other.core.status.leading_version)
        self.drain(node)

    # ---- to a fixed point ---------------------------------------------------------------------

    def do_settle(self, command: Command) -> None:
        """settle: write and deliver until nothing is left to write or deliver; time stands."""
        for _ in range(ROUNDS_MAX):
            writer = next((node for node in self.alive()
                           if node.store.pending() and node.id not in self.busy), None)
            if writer is not None:
                self.complete_write(writer)
            elif self.wire:
                self.arrive(*self.wire.pop(0))
            else:
                return
        raise ScriptError(f"line {command.line}: not settled after {ROUNDS_MAX} rounds")

    # ---- questions ----------------------------------------------------------------------------

    def do_wire(self, command: Command) -> list[str]:
        """wire [from=n1] [to=n2] [type=Append]: what is on the way."""
        everything = list(self.wire)
        taken, self.wire = self.take(command), everything
        return [describe.message(*item) for item in taken] or ["(empty)"]

    def do_log(self, command: Command) -> list[str]:
        """log n1 g1: the entries there, and how far each got."""
        node, group = self.nodes[command.node()], command.group()
        status = node.core.status.of(group)
        lines = []
        for entry in node.store._memory[group].entries:
            marks = [name for name, limit in (("durable", status.durable_index),
                                              ("committed", status.commit))
                     if entry.index <= limit]
            lines.append(" ".join([describe.entry(entry), *marks]))
        return lines or ["(empty)"]

    def do_status(self, command: Command) -> list[str]:
        """status [n1] [g1]: a line per replica."""
        nodes = [int(word[1:]) for word in command.arguments if word[0] == "n"]
        groups = [int(word[1:]) for word in command.arguments if word[0] == "g"]
        return [describe.status(node.id, node.core.status.of(group)) for node in self.alive()
                for group in node.core.status.groups()
                if (not nodes or node.id in nodes) and (not groups or group in groups)]

    def do_members(self, command: Command) -> list[str]:
        """members n1 g1: what that leader knows of the others."""
        return describe.members(self.nodes[command.node()].core.status.of(command.group()))

    def do_hints(self, command: Command) -> list[str]:
        """hints n1: the leaders that node knows."""
        node = self.nodes[command.node()]
        groups = sorted({group for other in self.alive() for group in other.core.status.groups()})
        return [f"g{group} {describe.node_name(leader)} term={term}" for group in groups
                for leader, term in [node.core.status.leader_hint(group)]]

    def do_deadline(self, command: Command) -> list[str]:
        """deadline [n1]: when each node's next timer is due."""
        return [f"n{node.id} " + ("no timer" if node.core.next_deadline_ms() is None else
                                  f"in {node.core.next_deadline_ms() - self.now_ms} ms")
                for node in self.alive()
                if not command.arguments or node.id == command.node()]
