"""Placeholder docstring; owned by the package author."""
