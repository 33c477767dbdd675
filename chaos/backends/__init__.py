"""Clusters of real nodes, and all the ways to hurt them: processes or containers of one machine."""
