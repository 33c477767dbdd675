"""Simulated disks: the file system, its worker, its faults and its corruption."""
