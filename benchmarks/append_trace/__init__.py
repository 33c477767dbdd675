"""Trace of single appends: where each microsecond goes, at the client, the leader and a follower.

    make trace-append                                three nodes, 10,000 appends, one at a time
    make trace-append ARGS="--count 2000 --picture docs/pictures/append-trace.svg"

Contract.  Every process records times of the monotonic clock at ``points``, which it shares with
all processes of the machine, and writes them to a file when it ends.  ``path`` follows each append
backward from its acknowledgement, so that its parts add up to its latency.  Only one append is in
flight at a time: what a node does between its begin and its end belongs to it.

    points.py     names of the recorded points
    recorder.py   the record of one process, and the probes of a node
    traced_node.py  the command of a node with probes
    path.py       the critical path of an append, from the records
    report.py     table, causes of the slowest appends, picture
"""
