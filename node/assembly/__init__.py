"""The wiring of one node: construction of its parts with their collaborators, by subject.

    env          configuration, log, store, consensus core, handle on the round loop
    metadata     known nodes, admission, the state of the metadata group, the router
    storage      disk worker, disk probe, local repair, scrub
    peers        connections to other nodes, liveness, requests between nodes
    reads        fetch, list offsets
    admin        administrative requests
    clients      appends, sessions
    replicas     life cycle of replicas, snapshots, repair, partition switches
    rebalance    plans, loads
    driver       the applier of committed entries, the round loop, the watchdog
    membership   the peer port, links to known nodes, registration
    status       counters

``node.main`` calls the builders in this order; each takes the parts that were built before. Three
kinds of object break the dependency cycles between parts: ``LoopHandle`` (parts request rounds from
the loop that calls them), ``Subscribers`` (events of a part, for parts that are built later) and
the tables of request handlers, which grow until the node serves.
"""
