"""Deterministic simulation of a whole cluster: a seed decides everything that happens.

Real consensus (``multiraft``), real storage (``multiraft.storage``) and the pure steps of ``node``
run on several simulated nodes in one thread.  Time and clients are simulated, and so are the
network (it loses, delays, duplicates and reorders) and the disks (they keep synced bytes and little
else).  A node may crash between any two effects.  After every effect a state checker compares the
cluster with the invariants of Raft and with the promises to clients.

Contract.  ``simulation.run(Parameters.draw(seed))`` is a function of the seed.  ``multiraft chaos
sim --seed S`` replays it; ``docs/simulator.md`` explains the trace.

Packages.  ``env``: virtual time, network, trace, parameters.  ``disk``: file system, disk worker,
disk faults, fault atlas.  ``node``: the parts of one node.  ``clients``: workload, topics,
history.  ``faults``: nemesis.  ``oracle``: models and invariants.  ``runner``: batches of seeds,
what counts as a tested seed, shrinking, folders of failed seeds.
"""
