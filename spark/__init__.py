"""Spark job that plans rebalancing from metrics, and the snapshots that plans are made from.

Contract.  Spark reduces the input: large tables stay distributed, the small rest goes to one task,
the planner of ``placement``.  Only that planner decides placements; see docs/spark-planning.md.

    schema      the tables of a snapshot, versioned
    tables      a snapshot as Parquet: written, read, and as a ``placement.cluster.Snapshot``
    gates       checks that a snapshot is complete, fresh and possible, before any computation
    session     Java and Spark found and started, or a sentence that names what is missing
    loads       the distributed part: sums per group, large partitions, sets to shed
    planning    the stages from a directory to a plan
    errors      errors of the input or the machine
"""
