"""Points of a process at which the time is recorded, and the value that belongs to each."""

from __future__ import annotations

#: Waiting for arrivals; the value is the time that the thread has waited for a processor so far, in
#: nanoseconds.
WAIT_BEGIN, WAIT_END = 1, 2
#: A client's bytes are received by the leader.
CLIENT_RECEIVED = 3
#: Messages of a node are received; the value is its id.
PEER_RECEIVED = 4
#: A round begins and ends.
ROUND_BEGIN, ROUND_END = 5, 6
#: Frames are written to other nodes.
PEERS_FLUSHED = 7
#: A write is passed to the disk thread; the value is its size in bytes.
WRITE_SUBMITTED = 8
#: A completed write is collected; the value is its duration on the disk thread in microseconds.
WRITE_COLLECTED = 9
#: Replies are written to clients.
CLIENTS_FLUSHED = 10
#: A pass of the garbage collector; the value of its end is the generation.
GC_BEGIN, GC_END = 11, 12
#: The client begins an append, and has its outcome.
APPEND_BEGIN, APPEND_END = 13, 14
