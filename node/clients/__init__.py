"""The client port: sessions, produce, fetch, and the limits on one client's work.

Read ``session`` first: one connection, from frames to handlers and back. ``produce``, ``fetch`` and
``list_offsets`` are the handlers of data; ``router`` and ``read_view`` tell them where a partition
is and what may be read of it; ``pending`` and ``read_index`` hold requests until their outcome is
certain; ``memory_budget`` and ``connection_reaper`` bound all clients together.
"""
