"""Deterministic simulation: one seed replays the world.

Real consensus (``multiraft``) and real storage (``multiraft.storage``) run on several simulated
nodes in one thread: virtual time, a network that loses, delays, duplicates and reorders, a disk
that keeps what was synced and little else, crashes between any two effects, clients that retry.
Every effect is shown to a witness that checks the invariants of Raft and the promises to clients.

Contract.  ``world.run(Parameters.draw(seed))`` is a function of the seed.  ``python -m
chaos.simulator --seed S`` replays it; ``docs/simulator.md`` explains the trace.

Elsewhere.  events (virtual time), network, filesystem (disk), node (driver), workload (clients),
nemesis (faults), model + witness + invariants (what must hold).
"""
