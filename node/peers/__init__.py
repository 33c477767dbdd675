"""Connections between nodes: handshake, append and bulk connections, liveness, admission.

Read ``append_links`` first (outgoing consensus messages), then ``listener`` (incoming ones).
``handshake`` and ``registry`` decide which nodes are accepted, and ``admission`` when this node may
take part. ``liveness_thread`` exchanges heartbeats on connections of its own, ``bulk_channel``
carries large requests such as snapshots.
"""
