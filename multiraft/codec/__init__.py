"""Byte layouts and encodings, with the reference twin of the compiled hot path."""
