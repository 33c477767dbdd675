"""The other groups of commands, each in a module."""
