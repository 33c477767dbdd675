"""Models and invariants that simulated runs are checked against."""
