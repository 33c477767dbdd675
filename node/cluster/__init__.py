"""Requests between nodes about the cluster: registration, metadata, reported configurations.

Read ``peer_requests`` first: one request and its reply between two nodes. ``metadata_client`` sends
requests to the metadata leader, ``passed_on`` those of clients; ``registration``,
``config_reports`` and ``metadata_learners`` are the tasks that use it or act as that leader.
"""
