"""The round loop of a node: socket events in, one write of the journal, messages and replies
out."""
