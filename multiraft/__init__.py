"""MultiRaft storage node: the library.

``multiraft.raft.multi_raft.MultiRaft`` is every Raft group of one node in one value machine.  It
reads no clock, file or socket, starts no thread and knows no transport: inputs are method calls,
effects are values in a ``Ready``.  What follows is the contract for whoever drives it.

Duties of the driver
--------------------

1. **Obey Ready in the order of its fields**, one Ready at a time, until ``ready()`` is empty:

   a. ``writes``: stage them first, in memory (``stage``), because messages name ranges of the log
      and are filled from storage; then start the write.
   b. ``messages``: send at once.  An ``Append`` with ``last_index > prev_index`` gets its
      ``entries`` from storage now.  When they have to be read from a disk first, ask
      ``core.status.leads(group, term)`` again after the read, and do not send when it is false
      or the range is gone.
   c. ``messages_after_write``: send when ``writes`` is durable, not earlier.  They are votes and
      whatever else speaks of a term: leaving early is voting twice.
   d. ``committed``: apply entries first..last of each group in order, answer the clients that wait
      for them, call ``core.applied(group, last)``.  The group's tail has moved its applied state.
   e. ``events``: trace values; ``multiraft.raft.describe`` turns them into text.

2. **One write is one append and one fsync for all groups.**  When it is durable call
   ``core.written(sequence)``, in order.  While it is in flight go on with ``tick``, ``step`` and
   ``ready(with_writes=False)``: what needs writing piles up and is the next write (group commit).
   A driver that queues writes may ask for them at any time.  A write that failed is never retried
   and never reported: the node stops, because a second fsync may lie about the first.

3. **Bring time and messages.**  ``tick(now_ms)`` with a clock that does not go back, at
   ``next_deadline_ms()`` at the latest (None = nothing is due; ask again after every Ready).
   ``step(sender, message)`` for each message, entries checked against their CRCs before.  The
   network may lose, repeat and reorder; it must not invent.  ``connected`` and ``disconnected``
   tell when the append connection to a node comes and goes; between them the core sends nothing but
   votes there.

4. **Run the leases.**  ``multiraft.liveness.store_liveness.Liveness`` on a thread of its own asks
every node once
   per interval and answers; its events are calls of the core (``leases.deliver``).  Publish
   ``led_digest`` and ``believed_digest`` of every peer, ``led_version`` and the node's health to it
   after each round.  Its events reach the core before any message that arrived after them: a new
   life of a node is known before that life's first append.  The boot epoch is durable and
   grows with every start.

5. **Start from what is durable.**  ``add_group`` gets what recovery found; entries that were not
   fsynced do not exist.  A replica that is damaged below its durable mark is added as quarantined.

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
            core.written(sequence); send(after_write.pop(sequence))
        for request in proposals:             pending[core.propose_batch(...)] = request
        while ready := core.ready(with_writes=disk.idle):
            if ready.writes:
                staged = store.stage(ready.writes)
                after_write[ready.writes.sequence] = ready.messages_after_write
                disk.start(staged)
            send(ready.messages)
            for group, first, last in ready.committed:
                apply(store.entries(group, first, last)); answer(pending); core.applied(group, last)

A proposal is *accepted* when ``propose`` returns ``(index, term)``; it is *committed* when
``committed`` covers ``index`` and the entry there has ``term``.  If another term's entry stands
there it was lost; if leadership or the connection ended before either, its outcome is unknown to
the client (ambiguous), never a refusal.  A ``ProposalError`` is a refusal: nothing was appended.

Messages
--------

**VoteRequest, VoteReply** (pre-vote and vote).  A pre-vote changes nothing anywhere.  A voter that
trusts its leader refuses both without touching its term, unless the campaign is a ``transfer`` that
the leader asked for.  Votes leave when term and vote are durable, a candidate's own included.

**Append.**  Entries (prev_index, last_index], the entry before them for the consistency check, the
leader's commit index.  Without entries it is a probe or announces a commit.  The receiver caps the
commit index at the prefix it has verified to match.

**AppendReply.**  ``match`` is verified *and* durable: the only number that commits.  It answers
several appends at once.  MISMATCH names the last entry that may match; UNKNOWN_GROUP, QUARANTINED
and GONE_WRONG are answers about one group and say nothing about the others in the frame.

**TimeoutNow.**  A leader asks a member whose log is complete to campaign at once.

**DigestQuery, DigestAnswer.**  Two nodes disagree about what one of them leads: 64 bucket sums
there, the groups of the differing buckets back.  A lease without an explained digest is not
believed.

**LedRequest, LedChanges.**  What changed in the list of groups a node leads, so that every node has
a hint for every group.

``docs/architecture.md`` has a map of the modules, ``docs/divergence.md`` the differences from the
Raft thesis with their reasons.
"""

__version__ = "0.1.0"
