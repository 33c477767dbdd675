"""Bugs to plant in storage: what a disk has, and what a restart finds.

They come from the catalogues of reported Raft and storage bugs; each says what it breaks and where
it was seen.
"""

from __future__ import annotations

from chaos.planted.bug import SIMULATOR, Bug, Seeds

#: Rot shows what a damaged replica may do wrong only while others are away.
ROT = ("bit-rot", "bit-rot", "bit-rot", "isolate-leader", "partition-one", "kill")

BUGS = (
    Bug("vote-not-persisted", "multiraft.storage.store", "_append_lane_entries",
        "term, vote = write.hard_state",
        "term, vote = write.hard_state[0], 0",
        "the vote is forgotten by a restart (hashicorp #661, PySyncObj #84)",
        SIMULATOR, Seeds()),
    Bug("window-lost-on-restart", "multiraft.storage.recovery", "_Recovery._replay",
        "if tail.last_index != log.index.last_index",
        "tail._windows.clear()\n    if tail.last_index != log.index.last_index",
        "producers are forgotten by a restart: retries are doubled or refused for ever",
        SIMULATOR, Seeds()),
    Bug("drop-not-written", "multiraft.storage.store", "_append_lane_entries",
        "write.drop_from))",
        "1 << 40))",
        "a dropped suffix comes back after a restart",
        SIMULATOR, Seeds()),
    Bug("recovery-trusts-page-cache", "multiraft.storage.recovery", "_Recovery._settle",
        "if begin < end:",
        "if False:",
        "what recovery read was never synced (Rebello et al., ATC 2020)",
        SIMULATOR, Seeds()),
    Bug("replaced-without-sync", "multiraft.storage.envelope", "replace_file",
        "True)",
        "False)",
        "a file's name is durable before its contents",
        SIMULATOR, Seeds()),
    Bug("tombstone-forgets-the-vote", "multiraft.storage.group_log", "GroupLog.bury",
        "self.hard_state, self.barred = left.hard_state, left.barred",
        "self.barred = left.barred",
        "a replica that is added again votes a second time in a term (S28f)",
        SIMULATOR, Seeds(members=True)),
    Bug("lifted-early", "multiraft.storage.repairer", "Repairer.step",
        "if log.doubtful and not core.is_cleared(group):",
        "if False:",
        "a replica comes back before its leader has cleared it",
        SIMULATOR, Seeds(faults=ROT)),
    Bug("lift-settles-the-future", "multiraft.storage.group_log", "GroupLog.has_settled",
        "first <= begin and max(begin, end) <= last",
        "True",
        "damage that comes after a repair is taken for what was repaired",
        SIMULATOR, Seeds(faults=ROT)),
    Bug("damage-forgotten-by-restart", "multiraft.storage.recovery", "_Recovery._judge_damage",
        "log.doubt(why)",
        "pass",
        "a hole in the lane is taken for the end of nobody's log",
        SIMULATOR, Seeds(faults=ROT)),
    Bug("cut-at-first-damage", "multiraft.storage.recovery", "_Recovery._judge",
        "if broken.position >= durable:",
        "if True:",
        "the first bad checksum is taken for the log's end, and what follows is cut (etcd #11918 "
        "and others)",
        SIMULATOR, Seeds()),
)
