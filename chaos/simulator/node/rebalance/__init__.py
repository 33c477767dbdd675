"""Moves of one simulated node: switches, plans, preferred leaders."""
