"""Requests about sinks and their transactions (runs): open, commit, abort, look up, make void.

Contract.  As ``node/admin/requests.py``, which calls these handlers.  Any node answers about the
state of runs from its copy of the ledger.  The metadata leader answers where open runs stage, once
a majority has confirmed its leadership, because a plan that missed an open run would split it.  The
same holds for ``settle_runs``, which distinguishes runs that were never opened from runs whose
opening a node has not applied yet.

Theory.  Readers wait at the first batch that an open run has staged, and its writer may have died.
The metadata leader aborts the run ``limits.run_timeout_ms`` after it first saw the run, by its own
clock.  A run that ends too early costs its writer another run, and no row.  A batch of a run that
was never opened has no writer that could commit it.  A command makes such a run void, so that its
number is never granted: what a reader has skipped remains skipped (``decisions/0053``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

import multiraft
from multiraft.errors import MultiRaftError
from multiraft.types import METADATA_GROUP
from multiraft.wire import sinks as wire
from multiraft.wire.errors import (
    Code,
    LeaderUnknown,
    LimitExceeded,
    StaleMetadata,
    exception_for,
)
from node.clock import monotonic_ms
from node.loop.turns import Turns, parts

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.read_index import ReadIndexRequests
    from node.metadata.commands import Command
    from node.metadata.log import MetadataLog
    from node.metadata.transaction_table import TransactionTable

#: Attempts named by one reply about runs, at about ten bytes each: half of its header.  A client
#: that asks about more asks twice.
WINNERS_PER_REPLY_MAX = 50_000
#: Interval of the check of open runs and of the metadata leader, in seconds, while runs are open.
POLL_S = 10.0


class SinkAdmin:
    """Handlers of requests about sinks, and the task that aborts old runs."""

    def __init__(
        self,
        core: MultiRaft,
        metadata_log: MetadataLog,
        read_index_requests: ReadIndexRequests,
        run_timeout_ms: int,
        log: logging.Logger,
        turns: Turns,
    ):
        self._turns = turns
        self._core = core
        self._metadata_log = metadata_log
        self._read_index_requests = read_index_requests
        self._run_timeout_ms = run_timeout_ms
        self._log = log
        self._seen: dict[wire.RunRef, int] = {}  # open run -> when this leader saw it first

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for clients."""
        return {wire.OpenRun: self._open, wire.CommitRun: self._commit,
                wire.AbortRun: self._abort, wire.RunStates: self._states,
                wire.StagedTopics: self._staged, wire.SinkList: self._list,
                **self.peer_handlers}

    @property
    def peer_handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for nodes; clients may send these as well."""
        return {wire.SettleRuns: self._settle}

    @property
    def _sinks(self) -> TransactionTable:
        return self._metadata_log.state.sinks

    async def _open(self, request: wire.OpenRun) -> wire.OpenRunReply:
        """Open a run or join it.  All tasks of a run ask; only the first request becomes an entry.
        """
        self._metadata_log.check_leading()
        joined = self._sinks.joined(request)
        return joined if joined is not None else await self._propose(request)

    async def _commit(self, request: wire.CommitRun) -> wire.CommitRunReply:
        await self._propose(request)
        return wire.CommitRunReply()

    async def _abort(self, request: wire.AbortRun) -> wire.AbortRunReply:
        run = wire.RunRef(request.sink, request.run)
        self._metadata_log.check_leading()
        if self._sinks.known_state(run) == wire.UNOPENED:
            await self._void((run,))
        if self._sinks.known_state(run) == wire.VOID:
            return wire.AbortRunReply(False)
        return wire.AbortRunReply(await self._propose(request))

    async def _settle(self, request: wire.SettleRuns) -> wire.SettleRunsReply:
        """Return the states of runs that the leader has confirmed; make unopened ones void on
        request.

        A run that is given twice is answered once.  O(runs and their winners).
        """
        self._metadata_log.check_leading()
        runs = tuple(dict.fromkeys(request.runs))
        await self._turns.take(len(runs))
        await self._confirm()
        unopened = tuple(run for run in runs if self._sinks.known_state(run) == wire.UNOPENED)
        why = ""
        if unopened and request.void:
            try:
                await self._void(unopened)
            # the reply carries the reason, and the states of the other runs
            except MultiRaftError as error:
                why = str(error)[:wire.WHY_MAX]
        now_ms = monotonic_ms()
        return wire.SettleRunsReply(self._metadata_log.state.version,
                                    tuple(self._fact(run, why, now_ms) for run in runs))

    def _fact(self, run: wire.RunRef, why: str, now_ms: int) -> wire.RunFact:
        state = self._sinks.known_state(run)
        name, batch = self._sinks.named(run)
        if state != wire.UNOPENED:
            why = ""
        if state != wire.OPEN:
            return wire.RunFact(*run, state, self._sinks.state_of(run).winners, name, why=why)
        return wire.RunFact(*run, state, (), name, batch,
                            now_ms - self._seen.setdefault(run, now_ms))

    async def _void(self, runs: tuple[wire.RunRef, ...]) -> None:
        """Make runs void that were never opened.

        Raises ``StaleMetadata`` while nodes of other releases are in the cluster, which may not
        know the command, and the error of a refused command.
        """
        for node in self._metadata_log.state.nodes():
            if node.version != multiraft.__version__:
                raise StaleMetadata(
                    f"node {node.id} runs release {node.version or 'unknown'}, this one "
                    f"{multiraft.__version__}: a run that nobody opened becomes void when all "
                    f"nodes run the same release")
        await self._propose(wire.VoidRuns(runs))
        for run in runs:
            self._log.warning("run is void: it has batches and nobody opened it",
                              extra={"sink": run.sink, "run": run.run})

    async def _states(self, request: wire.RunStates) -> wire.RunStatesReply:
        """Return the states of runs.

        A run that is given twice is answered twice.  O(runs and their winners), in turns.  Raises
        ``LimitExceeded``.
        """
        states: list[wire.RunState] = []
        winners = 0
        for part in parts(len(request.runs)):
            await self._turns.take(len(part))
            states += map(self._sinks.state_of, request.runs[part.start:part.stop])
            winners += sum(len(state.winners) for state in states[part.start:])
            if winners > WINNERS_PER_REPLY_MAX:
                raise LimitExceeded(
                    f"the answer names at most {WINNERS_PER_REPLY_MAX} attempts, these "
                    f"{len(request.runs)} runs have {winners} or more: ask about fewer at a time",
                    limit=WINNERS_PER_REPLY_MAX, value=winners)
        return wire.RunStatesReply(tuple(states))

    async def _staged(self, _request: wire.StagedTopics) -> wire.StagedTopicsReply:
        self._metadata_log.check_leading()
        await self._confirm()
        sinks = self._sinks
        return wire.StagedTopicsReply(sinks.stagings, sinks.staged())

    async def _list(self, request: wire.SinkList) -> wire.SinkListReply:
        await self._turns.take(request.count_max)
        return wire.SinkListReply(*self._sinks.rows(request.after, request.count_max))

    async def _confirm(self) -> None:
        """Wait until all entries that were committed before the call are applied here.  Raises
        ``LeaderUnknown``."""
        told, sure = trio.Event(), []

        def then(confirmed: bool) -> None:
            sure.append(confirmed)
            told.set()

        if self._read_index_requests.ask(METADATA_GROUP, then):
            await told.wait()
        if sure != [True]:
            raise LeaderUnknown("the metadata group's leader was not confirmed; try again")

    async def _propose(self, command: Command) -> Any:
        """Return the value of a command that succeeded.  Raises the error of its result."""
        result = await self._metadata_log.propose(command)
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        return result.value

    # ---- runs that were left ---------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.check(monotonic_ms())
            await self._metadata_log.applied(
                self._metadata_log.state.version + 1,
                POLL_S if self._sinks.open_runs() else float("inf"))

    async def check(self, now_ms: int) -> None:
        """Abort runs that were open for too long, if this node is the leader.  O(open runs)."""
        leads = self._core.status.is_settled(METADATA_GROUP)
        self._seen = {run: self._seen.get(run, now_ms)
                      for run in (self._sinks.open_runs() if leads else ())}
        for run, since_ms in self._seen.items():
            if now_ms - since_ms < self._run_timeout_ms:
                continue
            try:
                committed = await self._propose(wire.AbortRun(*run))
            except MultiRaftError as error:  # retried by the next leader or in the next iteration
                self._log.info("run is not given up yet", extra={"reason": str(error)})
                return
            if not committed:
                self._log.warning("run given up", extra={"sink": run.sink, "run": run.run})
