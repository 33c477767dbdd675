"""Rebalance plans: replicated state, observations, decisions and their execution.

    controller         the metadata leader's task: observe, decide, act
    observer           gathers a view from leaders of groups and from nodes
    cluster_view       the values of a view
    scheduler          (plan, view) -> next actions; no I/O and no clock
    replica_change     the scheduler's part for one change of replicas
    actions            the values that the scheduler returns
    preconditions      checks before a plan is recorded
    disk_room          the check for disk space when a move starts
    safety             rules for pausing and resuming a plan
    backoff, throttle  rate of a plan after a pause; rates of this node's streams
    latency, progress  measurements of appends and of a plan
    preferred_leaders  transfers groups back to the leaders that a plan chose
    participant        reports and changes of groups at their leader
    requests, service  requests of clients; the parts of one node
    runtime            time and concurrency, replaced by the simulator

Commands, phases and the replicated plan: ``node/metadata``.
"""
