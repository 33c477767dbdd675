"""Runs: a cluster of real nodes, workloads and faults, and the verdict on the promises.

Contract.  ``parameters`` describe a run, ``run_phases`` carries it out and leaves a folder,
``evaluate`` returns the verdict.  ``command`` is `multiraft chaos run`.
"""
