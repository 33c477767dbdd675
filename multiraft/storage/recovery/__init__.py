"""Recovery: the state of all groups rebuilt from checkpoint and journal after a start."""
