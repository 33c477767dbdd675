"""Chaos: what tries to break the promises, and the checkers that notice."""
