"""Nemeses: one small class per kind of fault, and the rotation that schedules them."""
