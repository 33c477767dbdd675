"""Chaos: fault injection against the promises, and the checkers that detect violations."""
