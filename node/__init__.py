"""The server: the only package where trio runs.  ``main.py`` wires it, nothing imports it."""
