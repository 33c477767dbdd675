"""Administrative requests of clients."""
