"""Rebalance plans: their inputs, how they are made, shown and applied; drains; loads."""
