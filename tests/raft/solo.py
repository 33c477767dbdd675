"""One replica alone, fed with hand-made messages: what does it say, and when?"""

from __future__ import annotations

import random

from multiraft.raft.config import RaftConfig
from multiraft.raft.log_state import NullLogState
from multiraft.raft.memory_storage import MemoryStore
from multiraft.raft.messages import Append, AppendReply, VoteReply, VoteRequest
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import GroupWrite, Writes
from multiraft.types import Configuration, Entry, EntryKind, HardState

GROUP = 1


def entry(index: int, term: int, payload: bytes = b"") -> Entry:
    """An entry of the group."""
    return Entry(EntryKind.METADATA, GROUP, 1, term, index, payload=payload)


class Solo:
    """Node 1 of ``voters`` with a log of those terms, supported by all, connected to all."""

    def __init__(self, terms=(), term: int = 0, vote: int = 0, voters=(1, 2, 3), learners=(),
                 seed: int = 1, config: RaftConfig | None = None, supported: bool = True):
        self.config = config or RaftConfig()
        self.store = MemoryStore()
        self.store.create_group(GROUP, 1, Configuration(tuple(voters), tuple(learners)))
        entries = tuple(entry(index, at) for index, at in enumerate(terms, 1))
        term = max([term, *terms])
        self.store.stage(Writes(1, (GroupWrite(GROUP, 1, 0, entries, HardState(term, vote)),)))
        self.store.execute()
        self.now_ms = 0
        self.seed, self.life = seed, 0
        self.others = [node for node in (*voters, *learners) if node != 1]
        self.boot(supported)

    def boot(self, supported: bool = True) -> None:
        """Start, or start again from what is on the disk."""
        self.life += 1
        self.core = MultiRaft(1, self.config, self.store, random.Random(self.seed), self.now_ms,
                              self.life)
        self.core.add_group(GROUP, 1, self.store.restored(GROUP), NullLogState())
        self.sent: list = []
        self.applied: list = []
        self.events: list = []
        self.reads: list = []
        for node in self.others if supported else ():
            self.core.connected(node)
            self.core.lease_granted(node, 1)
            self.core.lease_held(node, 1)
        self.drain()

    def drain(self, write: bool = True) -> list:
        """Obey Ready; the messages sent by that, (to, message)."""
        before = len(self.sent)
        while ready := self.core.ready():
            self.events += ready.events
            self.reads += ready.reads
            if ready.writes is not None:
                self.store.stage(ready.writes)
            self.sent += ready.messages
            for committed in ready.committed:
                self.applied += self.store.entries(GROUP, committed.first, committed.last)
                self.core.applied(GROUP, committed.last)
            if write:
                self.write()
        return self.sent[before:]

    def write(self) -> list:
        """Everything staged becomes durable; the messages that waited for it."""
        before = len(self.sent)
        while self.store.pending():
            self.core.written(self.store.execute())
            self.drain(write=False)
        return self.sent[before:]

    def step(self, sender: int, message, write: bool = True) -> list:
        """Feed a message; the messages sent because of it, without their receivers."""
        self.core.step(sender, message)
        return [envelope.message for envelope in self.drain(write)]

    def tick(self, ms: int) -> list:
        """Let time pass, with every timer at its time."""
        before, end_ms = len(self.sent), self.now_ms + ms
        while self.now_ms < end_ms:
            deadline = self.core.next_deadline_ms()
            self.now_ms = end_ms if deadline is None else max(self.now_ms, min(deadline, end_ms))
            self.core.tick(self.now_ms)
            self.drain()
        return [envelope.message for envelope in self.sent[before:]]

    @property
    def status(self):
        return self.core.status.of(GROUP)

    @property
    def log(self) -> list[int]:
        """Terms of the log's entries."""
        return [entry.term for entry in self.store._memory[GROUP].entries]

    # ---- what others say ----------------------------------------------------------------------

    def vote_request(self, sender=2, term=1, last=(0, 0), pre=False, transfer=False, write=True):
        replies = self.step(sender, VoteRequest(GROUP, 1, term, last[0], last[1], pre, transfer),
                            write)
        return [reply for reply in replies if isinstance(reply, VoteReply)]

    def append(self, sender=2, term=1, prev=(0, 0), terms=(), commit=0, write=True):
        entries = tuple(entry(prev[0] + count, at) for count, at in enumerate(terms, 1))
        replies = self.step(sender, Append(GROUP, 1, term, prev[0], prev[1],
                                           prev[0] + len(terms), commit, entries), write)
        return [reply for reply in replies if isinstance(reply, AppendReply)]

    def acknowledge(self, sender, match, commit=0, term=0, read_round=0):
        return self.step(sender, AppendReply(GROUP, 1, term or self.status.term, 0, match, commit,
                                             match, 0, read_round))

    def new_life(self, node, boot_epoch=2) -> list:
        """A member's node restarts; the messages sent because of it."""
        self.core.lease_held(node, boot_epoch)
        self.core.connected(node)
        return [envelope.message for envelope in self.drain() if envelope.to == node]

    def campaign(self) -> None:
        """Let the election timer run out."""
        while self.status.role == 0:
            self.tick(max(1, self.core.next_deadline_ms() - self.now_ms))

    def candidate(self) -> None:
        """Campaign, with all pre-votes won."""
        self.campaign()
        for node in self.others:
            if self.status.role == 1:
                self.step(node, VoteReply(GROUP, 1, self.status.term + 1, True, True))

    def lead(self) -> None:
        """Win an election."""
        self.candidate()
        for node in self.others:
            if self.status.role == 2:
                self.step(node, VoteReply(GROUP, 1, self.status.term, True, False))
        assert self.status.leader == 1
