"""Commands that run seeds: batches, coverage, shrinking, folders of failed seeds."""
