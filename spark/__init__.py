"""The Spark job that plans rebalancing from the cluster's own metrics.

Contract.  Nothing yet.  The distribution reserves the name, so that no other package takes it.
"""
