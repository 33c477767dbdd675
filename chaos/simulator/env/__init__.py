"""The world around simulated nodes: events, network, trace, parameters."""
