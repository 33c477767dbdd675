"""The client port: sessions, produce, fetch, and the limits on one client's work."""
