"""Runs: a cluster of real nodes, workloads and faults, and the verdict on the promises.

Contract.  ``parameters`` describe a run, ``conduct`` carries it out and leaves a folder, ``judge``
returns the verdict.  ``command`` is `multiraft chaos run`.
"""
