"""`multiraft produce` and `multiraft consume`: sources, formats, readers, waits."""
