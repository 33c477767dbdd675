"""The Spark job that plans rebalancing from metrics, and the snapshots it is made from.

Contract.  Spark *advises*: what is large stays distributed, what is small goes to one task, which
is ``placement``'s own planner.  Nothing here decides where anything goes; see
docs/spark-planning.md.

    schema      the tables of a snapshot, versioned
    tables      a snapshot as Parquet: written, read, and as a ``placement.cluster.Snapshot``
    gates       is it complete, fresh and possible?  Asked before anything is computed
    session     Java and Spark found and started, or a sentence that says what is missing
    loads       the distributed part: sums per group, large partitions, sets to shed
    planning    the stages from a directory to a plan
    errors      what can be wrong with the input or the machine
"""
