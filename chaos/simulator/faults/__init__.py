"""Faults that the nemesis of the simulator causes."""
