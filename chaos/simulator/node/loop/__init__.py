"""Rounds of one simulated node, and what each of them drives."""
