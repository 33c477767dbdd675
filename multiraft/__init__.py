"""MultiRaft storage node: the library.

``multiraft.raft.multi_raft.MultiRaft`` runs every Raft group of one node as one sans-I/O state
machine.  It reads no clock, file or socket, starts no thread and knows no transport: inputs are
method calls, effects are values in a ``Ready``.  The following is the contract of its driver.

Duties of the driver
--------------------

1. **Carry out each Ready in the order of its fields**, one Ready at a time, until ``ready()`` is
   empty:

   a. ``writes``: stage them in memory first (``stage``), because messages name ranges of the log
      and are filled from storage; then start the write.
   b. ``messages``: send at once.  An ``Append`` with ``last_index > prev_index`` gets its
      ``entries`` from storage now.  If they have to be read from a disk first, call
      ``core.status.leads(group, term)`` again after the read, and do not send if it is false
      or the range is gone.
   c. ``committed``: apply entries first..last of each group in order, answer the clients that wait
      for them, call ``core.applied(group, last)``.  The group's tail has moved its applied state.
   d. ``reads``: answer each linearizable read from applied state at its index or later.
   e. ``events``: trace values; ``multiraft.raft.describe`` turns them into text.

2. **One write is one append and one fsync for all groups.**  When it is durable, call
   ``core.written(sequence)``, in order.  The core keeps votes and acknowledgements of what is not
   durable until then: sent earlier, a crash could let this node vote twice in a term.  While the
   write is in flight, continue with ``tick``, ``step`` and ``ready(with_writes=False)``: changes
   that need a write collect for the next one (group commit).  A driver that queues writes may ask
   for them at any time.  A write that failed is never retried and never reported: the node stops,
   because after a failed fsync a second one may succeed without the data.

3. **Provide time and messages.**  Call ``tick(now_ms)`` with a clock that does not go back, at
   ``next_deadline_ms()`` at the latest (None = nothing is due; ask again after every Ready).  Call
   ``step(sender, message)`` for each message, after its entries were checked against their CRCs.
   The network may lose, repeat and reorder messages; it must not invent any.  ``connected`` and
   ``disconnected`` report the append connection to a node; without one the core sends only votes
   there.

4. **Run store liveness.**  ``multiraft.liveness.store_liveness.StoreLiveness``, on a thread of its
   own, sends one heartbeat per node and interval and answers those of others.  Its events are calls
   of the core (``store_liveness.deliver``).  After each round, publish ``core.status.digests()``
   and the node's health to it.  Events must reach the core before any message that arrived after
   them, so that a new boot epoch of a node is known before its first append.  The boot epoch is
   durable and grows with every start.

5. **Start from durable state.**  ``add_group`` takes what recovery found; entries that were not
   synced do not exist.  A replica damaged below its durable watermark is added as quarantined.

The loop in full
----------------

::

    core = MultiRaft(node, config, store, random.Random(seed), clock(), boot_epoch)
    for group, restored in store.groups.items():
        core.add_group(group, restored.incarnation, restored, store.tails[group])

    while True:
        wait until: a message, a proposal, a lease event, the end of a write, or the deadline
        core.tick(clock())
        for event in lease_events:            core.lease_...(event)
        for sender, message in inbox:         core.step(sender, message)
        for sequence in completed_writes:
            core.written(sequence)
        for request in proposals:             pending[core.propose_batch(...)] = request
        while ready := core.ready(with_writes=disk.idle):
            if ready.writes:
                staged = store.stage(ready.writes)
                disk.start(staged)
            send(ready.messages)
            for group, first, last in ready.committed:
                apply(store.entries(group, first, last)); answer(pending); core.applied(group, last)

A proposal is *accepted* when ``propose`` returns ``(index, term)``; it is *committed* when
``committed`` covers ``index`` and the entry there has ``term``.  If the entry there has another
term, the proposal is lost.  If leadership or the connection ended before either, the outcome is
ambiguous for the client, and not a refusal.  A ``ProposalError`` is a definite refusal: nothing was
appended.

Messages
--------

**VoteRequest, VoteReply** (pre-vote and vote).  A pre-vote changes nothing anywhere.  A voter that
trusts its leader refuses both without touching its term, unless the campaign is a ``transfer`` that
the leader asked for.  Votes leave when term and vote are durable, a candidate's own included.

**Append.**  Entries (prev_index, last_index], the entry before them for the consistency check, the
leader's commit index.  Without entries it is a probe, or carries only the commit index.  The
receiver limits the commit index to the prefix that it has verified to match.

**AppendReply.**  ``match`` is verified *and* durable: the only number that commits.  One reply may
answer several appends.  MISMATCH names the last entry that may match; UNKNOWN_GROUP, QUARANTINED
and INVALID_ENTRY are answers about one group and say nothing about the others in the frame.

**TimeoutNow.**  A leader asks a member whose log is complete to campaign at once.

**DigestQuery, DigestAnswer.**  Two nodes disagree about the groups that one of them leads: 64
bucket sums in the query, the groups of the differing buckets in the answer.  A node that does not
explain its digest loses the trust of its followers, although they support it.

**LeadershipDeltaRequest, LeadershipDelta.**  Changes of the list of groups that a node leads, so
that every node has a leader hint for every group.

**SnapshotOffer.**  The leader has compacted what a member lacks; the member's driver fetches the
state and calls ``install_snapshot``.

**Removed.**  The leader's notice to a node that is no longer a member.

**HeadRecoveryRequest, HeadRecoveryGrant.**  Readmission of a replica that may have lost entries, a
term or a vote (``multiraft.raft.head_recovery``).

``docs/architecture.md`` has a map of the modules, ``docs/divergence.md`` the differences from the
Raft thesis with their reasons.
"""

#: Version of the distribution; pyproject.toml reads it here.
__version__ = "0.2.0.dev0"
