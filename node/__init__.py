"""The server: the only package where trio runs.  ``main.py`` wires it together; nothing imports it."""
