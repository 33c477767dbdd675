"""MultiRaft storage node: the library.  (The contract for drivers is written here by the consensus author.)"""

__version__ = "0.1.0"
