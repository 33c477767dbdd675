"""The state machine of the metadata group: topics, nodes, placement, plans, transactions."""
