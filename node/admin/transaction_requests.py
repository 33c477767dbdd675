"""Requests about sinks and their transactions: begin, commit, abort, look up, make void.

Contract.  As ``node/admin/requests.py``, which calls these handlers.  Any node answers about the
state of transactions from its copy of the ledger.  The metadata leader answers where open
transactions stage, once a majority has confirmed its leadership, because a plan that missed an open
transaction would split it.  The same holds for ``resolve_transactions``, which distinguishes
transactions that were never opened from transactions whose opening a node has not applied yet.

Theory.  Readers wait at the first batch that an open transaction has staged, and its writer may
have died. The metadata leader aborts the transaction ``limits.transaction_timeout_ms`` after it
first saw it, by its own clock.  A transaction that ends too early costs its writer another
transaction, and no row.  A batch of a transaction that was never opened has no writer that could
commit it.  A command makes such a transaction void, so that its number is never granted: what a
reader has skipped remains skipped (``decisions/0053``).
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
from node.loop.steps import parts
from node.loop.turns import Turns

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.read_index import ReadIndexRequests
    from node.metadata.commands import Command
    from node.metadata.log import MetadataLog
    from node.metadata.transaction_table import TransactionTable

#: Attempts named by one reply about transactions, at about ten bytes each: half of its header.  A
#: client that asks about more asks twice.
WINNERS_PER_REPLY_MAX = 50_000
#: Interval of the check of open transactions and of the metadata leader, in seconds, while
#: transactions are open.
POLL_S = 10.0


class SinkAdmin:
    """Handlers of requests about sinks, and the task that aborts old transactions."""

    def __init__(
        self,
        core: MultiRaft,
        metadata_log: MetadataLog,
        read_index_requests: ReadIndexRequests,
        transaction_timeout_ms: int,
        log: logging.Logger,
        turns: Turns,
    ):
        self._turns = turns
        self._core = core
        self._metadata_log = metadata_log
        self._read_index_requests = read_index_requests
        self._transaction_timeout_ms = transaction_timeout_ms
        self._log = log
        self._seen: dict[
            wire.TransactionRef, int
        ] = {}  # open transaction -> when this leader saw it first

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for clients."""
        return {wire.BeginTransaction: self._open, wire.CommitTransaction: self._commit,
                wire.AbortTransaction: self._abort, wire.TransactionStates: self._states,
                wire.StagedTopics: self._staged, wire.SinkList: self._list,
                **self.peer_handlers}

    @property
    def peer_handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for nodes; clients may send these as well."""
        return {wire.ResolveTransactions: self._resolve}

    @property
    def _sinks(self) -> TransactionTable:
        return self._metadata_log.state.sinks

    async def _open(self, request: wire.BeginTransaction) -> wire.BeginTransactionReply:
        """Begin a transaction or join it, and return its number; state COMMITTED = the batch was
        committed before. All tasks of a transaction ask; a request that changes nothing becomes no
        entry."""
        self._metadata_log.check_leading()
        joined = self._sinks.joined(request)
        return joined if joined is not None else await self._propose(request)

    async def _commit(self, request: wire.CommitTransaction) -> wire.CommitTransactionReply:
        await self._propose(request)
        return wire.CommitTransactionReply()

    async def _abort(self, request: wire.AbortTransaction) -> wire.AbortTransactionReply:
        txn = wire.TransactionRef(request.sink, request.transaction)
        self._metadata_log.check_leading()
        if self._sinks.known_state(txn) == wire.UNOPENED:
            await self._void((txn,))
        if self._sinks.known_state(txn) == wire.VOID:
            return wire.AbortTransactionReply(False)
        return wire.AbortTransactionReply(await self._propose(request))

    async def _resolve(self, request: wire.ResolveTransactions) -> wire.ResolveTransactionsReply:
        """Return the states of transactions, after a majority has confirmed this leader; make
        unopened ones void on request.

        A transaction that is given twice is answered once. If making void fails, the reply carries
        the reason. O(transactions and their winners)."""
        self._metadata_log.check_leading()
        txns = tuple(dict.fromkeys(request.transactions))
        await self._turns.take(len(txns))
        await self._confirm()
        unopened = tuple(txn for txn in txns if self._sinks.known_state(txn) == wire.UNOPENED)
        why = ""
        if unopened and request.void:
            try:
                await self._void(unopened)
            # the reply carries the reason, and the states of the other transactions
            except MultiRaftError as error:
                why = str(error)[:wire.WHY_MAX]
        now_ms = monotonic_ms()
        return wire.ResolveTransactionsReply(
            self._metadata_log.state.version,
            tuple(self._describe(txn, why, now_ms) for txn in txns))

    def _describe(self, txn: wire.TransactionRef, why: str,
                  now_ms: int) -> wire.TransactionDescription:
        state = self._sinks.known_state(txn)
        name, batch = self._sinks.named(txn)
        if state != wire.UNOPENED:
            why = ""
        if state != wire.OPEN:
            winners = self._sinks.state_of(txn).winners
            return wire.TransactionDescription(*txn, state, winners, name, why=why)
        open_ms = now_ms - self._seen.setdefault(txn, now_ms)
        return wire.TransactionDescription(*txn, state, (), name, batch, open_ms)

    async def _void(self, txns: tuple[wire.TransactionRef, ...]) -> None:
        """Make transactions void that were never opened, and log each.

        Raises ``StaleMetadata`` while nodes of other releases are in the cluster, which may not
        know the command, and the error of a refused command."""
        for node in self._metadata_log.state.nodes():
            if node.version != multiraft.__version__:
                raise StaleMetadata(
                    f"node {node.id} runs release {node.version or 'unknown'}, this one "
                    f"{multiraft.__version__}: a transaction that was never opened becomes void "
                    f"when all nodes run the same release")
        await self._propose(wire.VoidTransactions(txns))
        for txn in txns:
            self._log.warning("transaction_voided",
                              extra={"sink": txn.sink, "transaction": txn.number})

    async def _states(self, request: wire.TransactionStates) -> wire.TransactionStatesReply:
        """Return the states of transactions by this node's copy of the ledger.

        A transaction that is given twice is answered twice. O(transactions and their winners), in
        turns. Raises ``LimitExceeded`` if they have more than ``WINNERS_PER_REPLY_MAX`` winners."""
        states: list[wire.TransactionState] = []
        winners = 0
        for part in parts(len(request.transactions)):
            await self._turns.take(len(part))
            states += map(self._sinks.state_of, request.transactions[part.start:part.stop])
            winners += sum(len(state.winners) for state in states[part.start:])
            if winners > WINNERS_PER_REPLY_MAX:
                raise LimitExceeded(
                    f"the answer names at most {WINNERS_PER_REPLY_MAX} attempts, these "
                    f"{len(request.transactions)} transactions have {winners} or more: ask about "
                    f"fewer at a time", limit=WINNERS_PER_REPLY_MAX, value=winners)
        return wire.TransactionStatesReply(tuple(states))

    async def _staged(self, _request: wire.StagedTopics) -> wire.StagedTopicsReply:
        self._metadata_log.check_leading()
        await self._confirm()
        sinks = self._sinks
        return wire.StagedTopicsReply(sinks.stagings, sinks.staged())

    async def _list(self, request: wire.SinkList) -> wire.SinkListReply:
        await self._turns.take(request.count_max)
        return wire.SinkListReply(*self._sinks.rows(request.after, request.count_max))

    async def _confirm(self) -> None:
        """Wait until all entries that were committed before the call are applied here. Raises
        ``LeaderUnknown`` if no majority confirms this leader."""
        told, sure = trio.Event(), []

        def then(confirmed: bool) -> None:
            sure.append(confirmed)
            told.set()

        if self._read_index_requests.ask(METADATA_GROUP, then):
            await told.wait()
        if sure != [True]:
            raise LeaderUnknown("the metadata group's leader was not confirmed; try again")

    async def _propose(self, command: Command) -> Any:
        """Propose a command and return the value of its result, once it is applied here. Raises the
        error of a refusal, and what ``MetadataLog.propose`` raises."""
        result = await self._metadata_log.propose(command)
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        return result.value

    # ---- transactions that were left -------------------------------------------------------------

    async def run(self) -> None:
        """Run ``check`` after each metadata command, and every ``POLL_S`` while transactions are
        open, until cancelled."""
        while True:
            await self.check(monotonic_ms())
            await self._metadata_log.applied(
                self._metadata_log.state.version + 1,
                POLL_S if self._sinks.open_transactions() else float("inf"))

    async def check(self, now_ms: int) -> None:
        """Abort transactions that this leader has seen open for ``transaction_timeout_ms``; on
        other nodes only forget the times. A failed proposal is logged. O(open transactions)."""
        leads = self._core.status.has_applied_in_term(METADATA_GROUP)
        self._seen = {txn: self._seen.get(txn, now_ms)
                      for txn in (self._sinks.open_transactions() if leads else ())}
        for txn, since_ms in self._seen.items():
            if now_ms - since_ms < self._transaction_timeout_ms:
                continue
            try:
                committed = await self._propose(wire.AbortTransaction(*txn))
            except MultiRaftError as error:  # retried by the next leader or in the next iteration
                self._log.info("transaction_abort_deferred", extra={"reason": str(error)})
                return
            if not committed:
                self._log.warning("transaction_aborted",
                                  extra={"sink": txn.sink, "transaction": txn.number})
