"""The wiring of one node: which part is built with which others, one module per subject.

    env          configuration, log, store, consensus core, handle on the round loop
    metadata     known nodes, admission, the metadata group's state, the router
    storage      disk worker, disk probe, local repair, scrub
    peers        connections to other nodes, liveness, requests between nodes
    reads        fetch, list offsets
    admin        administrative requests
    clients      appends, sessions
    replicas     replicas that come and go, snapshots, repair, switches
    rebalance    plans, loads
    driver       what a round applies, the round loop, the watchdog
    membership   the peer port, links to the nodes that are known, registration
    status       counters

``node.main`` calls the builders in this order; each takes what was built before it.  Three objects
cut the circles between the parts: ``LoopHandle`` (parts request rounds of the loop that drives
them), ``Subscribers`` (a part's news, for parts that are built after it) and the tables of request
handlers, which grow until the node serves.
"""
