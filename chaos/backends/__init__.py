"""Backends: clusters of real nodes, as processes or containers of one machine, and their faults."""
