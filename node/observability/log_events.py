"""Table of the log's events: name, level, fields, meaning and what an operator does.

Contract.  A name is ``noun_verb`` and never changes its meaning; texts and numbers are fields.  A
test compares the table with every call of a logger, and with ``docs/log-events.md``, which is
generated from it.

Theory.  One name for one thing: ``peer`` is another node, ``group`` and ``term`` are Raft's,
``groups`` and ``peers`` are a number and a list, ``reason`` is the cause, errors of the operating
system included.  Sizes end in ``_bytes``.
"""

from __future__ import annotations

from typing import NamedTuple

DEBUG, INFO, WARNING, ERROR, CRITICAL = "debug", "info", "warning", "error", "critical"
#: Level of an event that reports about other events: theirs.
THEIRS = "as that event"
NOTHING = "-"


class LogEvent(NamedTuple):
    """One event of the log: its name, level and fields, its meaning, and what an operator does."""

    name: str
    level: str
    fields: tuple[str, ...]
    meaning: str
    action: str = NOTHING


class Section(NamedTuple):
    """Events of one subject."""

    title: str
    events: tuple[LogEvent, ...]


SECTIONS = (
    Section("The process", (
        LogEvent("node_started", INFO, ("client_address", "boot_epoch", "groups"),
                 "The ports are open. `/readyz` reports when the replicas have caught up."),
        LogEvent("shutdown_started", INFO, ("groups_leading",),
                 "A signal ends the node: it transfers leadership."),
        LogEvent("node_stopped", INFO, ("groups_leading",),
                 "No further round runs; the last checkpoint follows. `groups_leading` above 0: "
                 "no other node could lead so many groups."),
        LogEvent("node_failed", ERROR, ("reason",),
                 "The node ends with exit code 2, 3 or 4.",
                 "See the exit codes in [`node.md`](node.md)."),
        LogEvent("node_crashed", CRITICAL, (),
                 "The node ends with exit code 1; `traceback`.",
                 "Report it; starting again is safe."),
        LogEvent("security_reloaded", INFO, (),
                 "SIGHUP: new connections use the files of `[security]` as they are now."),
        LogEvent("security_reload_failed", ERROR, ("reason",),
                 "SIGHUP: a file of `[security]` cannot be used; the earlier ones stay in force.",
                 "Correct the file and send SIGHUP again."),
        LogEvent("http_disabled", WARNING, ("reason",),
                 "`http.address` is not configured and the default port is taken: no metrics, no "
                 "health.",
                 "Configure `http.address`."),
        LogEvent("connection_limit_lowered", WARNING,
                 ("connections_configured", "connections_permitted"),
                 "The system's limit of open files permits fewer client connections than "
                 "`limits.connections_max`.",
                 "Raise the limit of open files."),
        LogEvent("unreachable_address_configured", WARNING, ("host",),
                 "Other machines cannot connect to this address of the node.",
                 "Configure another address before other machines use the cluster."),
        LogEvent("config_key_renamed", WARNING, ("key", "new_key"),
                 "`node.toml` has a key under the name of an earlier release; it is read.",
                 "Rename the key: a later release will refuse it."),
        LogEvent("cluster_table_ignored", WARNING, ("difference",),
                 "`[cluster]` or `[topic_defaults]` in the file differs from the cluster, which is "
                 "authoritative.",
                 "Restore the table; change the cluster with `multiraft`, its settings with "
                 "`multiraft cluster settings`."),
        LogEvent("refusal_record_failed", ERROR, ("reason",),
                 "The cluster refuses this data directory for good, and the disk did not take "
                 "`refused.json`.",
                 "Do not start the directory again."),
    )),
    Section("The log itself", (
        LogEvent("log_lines_suppressed", THEIRS, ("suppressed_event", "lines"),
                 "Lines of that event that were not written, because it was too frequent."),
        LogEvent("log_lines_dropped", WARNING, ("lines",),
                 "Lines that were not written, because the reader of the log was too slow.",
                 "Check the reader: a pipe or the journal daemon."),
    )),
    Section("Nodes and connections", (
        LogEvent("node_lost", WARNING, ("peer", "boot_epoch", "groups_leading_here", "reason"),
                 "`peer` was up and is down, as far as this node can tell; `boot_epoch` is the "
                 "one that it had, `groups_leading_here` the number of groups that this node leads "
                 "at that moment.",
                 "Check `peer`, its log and the network; this node first if `reason` says that it "
                 "stalled, or if it lost all others at once."),
        LogEvent("node_returned", WARNING, ("peer", "boot_epoch", "down_ms"),
                 "A lost node is up again; a higher `boot_epoch` than in `node_lost`: it was "
                 "started again."),
        LogEvent("peer_stopped", INFO, ("peer", "boot_epoch", "groups_leading_here"),
                 "`peer` is down after it announced that it stops (SIGTERM); "
                 "`peer_restarted` reports its return."),
        LogEvent("quorum_lost", WARNING, ("groups", "first_groups", "peers", "reason"),
                 "So many groups with a replica here have no majority of voters that are up, as "
                 "far as this node can tell: they take no records. `peers` are the nodes that are "
                 "missing.",
                 "If `reason` says that this node stalled, check this node. Otherwise bring nodes "
                 "of `peers` back: [*Lost majority*](operations.md#lost-majority)."),
        LogEvent("quorum_regained", WARNING, ("groups", "first_groups", "groups_remaining"),
                 "So many of those groups have their majority again; `groups_remaining` have "
                 "not."),
        LogEvent("support_gained", INFO, ("peer", "boot_epoch"),
                 "`peer` supports this node (store liveness)."),
        LogEvent("support_lost", INFO, ("peer",),
                 "`peer` does not support this node: it is down, cut off or slow.",
                 "If it lasts, check `peer` and the network."),
        LogEvent("support_granted", INFO, ("peer", "boot_epoch"),
                 "This node supports `peer`."),
        LogEvent("support_withdrawn", INFO, ("peer",),
                 "This node does not support `peer`, whose heartbeats are late.",
                 "As `support_lost`."),
        LogEvent("peer_restarted", INFO, ("peer", "boot_epoch"),
                 "`peer` runs with a higher boot epoch."),
        LogEvent("peer_leadership_distrusted", WARNING, ("peer",),
                 "`peer` does not explain which groups it leads: they elect a leader anew."),
        LogEvent("clock_skew_found", WARNING, ("skew_ms",),
                 "The wall clock of this node is more than 60 s ahead of the median of the clocks "
                 "that it hears, or behind it (`skew_ms` is negative): the node deletes no records "
                 "by their age.",
                 "Set the clock, and check the time service (NTP). Where two nodes alone report "
                 "it, either clock may be wrong."),
        LogEvent("clock_skew_ended", INFO, ("skew_ms",),
                 "The wall clock of this node is near the others again."),
        LogEvent("peer_disk_full", INFO, ("peer",),
                 "`peer` takes no records, because its disk is full.",
                 "See `disk_full` in the log of `peer`."),
        LogEvent("peer_disk_space_freed", INFO, ("peer",),
                 "`peer` takes records again."),
        LogEvent("peer_address_rejected", WARNING, ("peer", "reason"),
                 "The registered peer address of `peer` is malformed.",
                 "Correct the address in the file of `peer` and restart it."),
        LogEvent("append_connection_lost", INFO, ("peer", "reason"),
                 "The connection on which this node sends appends to `peer` ended; the node "
                 "dials again."),
        LogEvent("append_connection_closed", WARNING, ("peer", "reason"),
                 "`peer` sent on its append connection what no correct node sends.",
                 "Report it; check the releases of both nodes."),
        LogEvent("peer_admission_refused", WARNING, ("peer", "reason"),
                 "`peer` refuses this node: another cluster or version, no proof of identity, or "
                 "unknown there. Logged once while the reason stays.",
                 "As `reason` says."),
        LogEvent("peer_connection_refused", WARNING, ("host", "reason", "connections"),
                 "This node refuses connections of `host` to its peer port, for the same reasons. "
                 "One line a minute for each `host` and `reason`; `connections` counts those "
                 "since the last one.",
                 "As `reason` says; a stranger may be dialling."),
        LogEvent("foreign_client_rejected", WARNING,
                 ("port", "host", "protocol", "reason", "connections"),
                 "A client at `host` speaks another protocol than the port `client` or `peer`: "
                 "HTTP, Kafka, TLS where the port has none, or no TLS where it has; or it is a "
                 "node on the client port. One line a minute for each `host` and `protocol`; "
                 "`connections` counts those since the last one.",
                 "As `reason` says: correct the address or the settings of that client."),
        LogEvent("client_connection_closed", INFO, ("reason",),
                 "A client violated the protocol or reached a time limit, which `reason` names."),
        LogEvent("producer_epoch_deferred", INFO, ("producer", "epoch", "reason"),
                 "The epoch that a producer of Kafka's clients raised was not granted.",
                 "The producer repeats its batch, which requests the epoch again."),
        LogEvent("node_registered", INFO, ("boot_epoch",),
                 "The metadata know this start of the node."),
        LogEvent("node_registration_deferred", INFO, ("reason",),
                 "The metadata do not know this start yet; the node registers again.",
                 "If it lasts: see `peer_admission_refused`, or the metadata group has no "
                 "leader."),
        LogEvent("peer_list_request_failed", DEBUG, ("peer", "reason"),
                 "`peer` did not answer which nodes it knows."),
        LogEvent("boot_id_renewal_deferred", DEBUG, (),
                 "The disk is full: the boot id is not renewed."),
        LogEvent("boot_id_announcement_failed", DEBUG, ("peer", "reason"),
                 "`peer` did not learn the renewed boot id."),
        LogEvent("metadata_learners_changed", INFO, ("learners",),
                 "A node joined or was removed: the learners of the metadata group."),
        LogEvent("metadata_learners_deferred", INFO, ("reason",),
                 "Another change of the metadata group's members is open; the node retries."),
    )),
    Section("Groups and replicas", (
        LogEvent("leadership_changed", INFO,
                 ("groups", "leader_before", "leader", "reason", "group_ids"),
                 "So many groups, which this node leads now or led before, changed their leader "
                 "within a second, for the same reason; 0 = no leader is known. One line names up "
                 "to 500 groups.",
                 "See [*When did a group move?*](operations.md#when-did-a-group-move)."),
        LogEvent("replica_role_changed", DEBUG, ("group", "term", "role", "leader", "reason"),
                 "A replica changed its role or its leader; `leader` 0 = none known."),
        LogEvent("replica_created", INFO, ("group", "leader"),
                 "This node became a member of `group`; `leader` is the node that asked for it."),
        LogEvent("replica_removed", INFO, ("group",),
                 "This node ceased to be a member of `group`."),
        LogEvent("group_recovery_forced", WARNING, ("group", "incarnation"),
                 "`group` continues from the replica on this node (`group recover`)."),
        LogEvent("leadership_resigned", WARNING, ("group", "term", "reason"),
                 "The oldest append of a group led here made no progress for "
                 "`limits.group_stall_ms_max`.",
                 "If it repeats, check disks and network of the group's members."),
        LogEvent("leadership_shed", INFO, ("groups", "first_group"),
                 "The disk is full: so many groups are transferred to other nodes."),
        LogEvent("leadership_transfer_refused", INFO, ("group", "term", "reason"),
                 "The node stops, and no other node can lead `group` now."),
        LogEvent("preferred_leaders_restored", INFO, ("groups", "peers"),
                 "So many groups are transferred to their preferred leaders, which returned."),
        LogEvent("snapshot_needed", WARNING,
                 ("group", "term", "peer", "next_index", "first_index"),
                 "`peer` lacks entries that are compacted here; it is offered a snapshot, every "
                 "few seconds until it has it."),
        LogEvent("snapshot_installed", INFO, ("group", "term", "index", "bytes"),
                 "A snapshot replaced the log of this replica up to `index`."),
        LogEvent("snapshot_download_resumed", INFO, ("group", "index", "bytes", "total_bytes"),
                 "After a restart: `bytes` of the snapshot were received before."),
        LogEvent("snapshot_download_failed", WARNING, ("group", "peer", "reason"),
                 "A snapshot could not be received from `peer`; the next offer tries again."),
        LogEvent("record_copy_started", INFO, ("group", "indexes"),
                 "After a snapshot, the records of so many indexes are copied from other members."),
        LogEvent("record_copy_failed", INFO, ("group", "peer", "reason"),
                 "`peer` did not answer a request for records; another member is asked."),
        LogEvent("records_copied", INFO, ("group", "records", "bytes", "took_ms"),
                 "The replica has all records."),
    )),
    Section("Disk, damage and repair", (
        LogEvent("disk_full", ERROR, ("free_bytes", "reserved_bytes"),
                 "Records are refused; votes, metadata and checkpoints use the reserve.",
                 "Free space: [*Full disk*](operations.md#full-disk)."),
        LogEvent("reserve_released", WARNING, ("free_bytes",),
                 "Space is so scarce that the file `reserve` was removed.",
                 "As `disk_full`."),
        LogEvent("disk_space_freed", INFO, ("free_bytes",),
                 "Records are accepted again."),
        LogEvent("damage_found", ERROR, ("path", "journal_offset", "group", "reason"),
                 "Recovery found damage; `group` -1 = all groups of the journal.",
                 "Repair follows by itself; replace the disk if it repeats."),
        LogEvent("checkpoint_damaged", WARNING, ("path",),
                 "The scrub found a damaged checkpoint; another one is written.",
                 "Replace the disk if it repeats."),
        LogEvent("segment_index_omitted", INFO, ("path", "reason", "limit", "value"),
                 "A full segment got no index file: `reason` is `value`, and the file can hold "
                 "`limit`. Its records are served; each start reads the whole segment."),
        LogEvent("stray_file_ignored", WARNING, ("path", "reason"),
                 "The data directory contains a file that the node did not write.",
                 "Move it away."),
        LogEvent("stray_files_ignored", WARNING, ("files",),
                 "There are so many more of them.",
                 "Move them away."),
        LogEvent("replica_quarantined", ERROR, ("group", "term", "reason"),
                 "A replica is damaged: it neither votes, leads nor acknowledges until it is "
                 "repaired.",
                 "Repair follows by itself; if it does not, see *Disk* in "
                 "[`node.md`](node.md)."),
        LogEvent("head_recovery_started", WARNING, ("group", "term", "last_index"),
                 "The end of a replica's log is unknown: it follows, uncounted, until its leader "
                 "readmits it."),
        LogEvent("replica_repaired", INFO, ("group", "term"),
                 "The replica counts again."),
        LogEvent("repair_request_failed", INFO, ("group", "peer", "reason"),
                 "`peer` did not answer a request for copies; another peer is asked."),
    )),
    Section("Pool, plans and partition switches", (
        LogEvent("pool_growth_started", INFO, ("from_groups", "to_groups"),
                 "The growth of the pool is decided; its new groups are created."),
        LogEvent("pool_growth_completed", INFO, ("groups",),
                 "Topics use all groups of the pool."),
        LogEvent("pool_growth_deferred", INFO, ("reason",),
                 "The metadata group did not accept the end of the growth; the node retries."),
        LogEvent("plan_controller_started", INFO, ("plan",),
                 "This node leads the metadata group and carries out `plan`."),
        LogEvent("plan_move_advanced", INFO, ("plan", "move", "phase", "reason"),
                 "A move of the plan entered `phase`."),
        LogEvent("plan_control_proposed", WARNING, ("plan", "action", "reason"),
                 "The controller pauses or resumes the plan by itself, or changes its throttle; "
                 "`action` is `pause`, `resume` or `throttle`.",
                 "`multiraft rebalance status` explains a pause."),
        LogEvent("plan_control_deferred", INFO, ("reason",),
                 "The metadata group did not accept that; the node retries."),
        LogEvent("partition_switch_deferred", INFO,
                 ("partition", "partition_epoch", "group", "reason"),
                 "A step of the switch to `group` is not possible now; the node retries."),
        LogEvent("log_starts_deferred", DEBUG, ("reason",),
                 "The log start of a partition was not passed on to a group of an earlier epoch; "
                 "the node retries."),
        LogEvent("retention_paused", WARNING, ("reason",),
                 "No records leave the partitions led here: by their age, while the clock of this "
                 "node is far from the others (`clock`); at all, while a node of the cluster has "
                 "a release that does not know the entries (`releases`).",
                 "Set the clock (NTP), or upgrade the nodes that `multiraft node list` shows with "
                 "an earlier release."),
        LogEvent("retention_deferred", DEBUG, ("partition", "reason"),
                 "A group with records of an earlier epoch of the partition does not answer; the "
                 "node asks it again."),
        LogEvent("retention_resumed", INFO, ("reason",),
                 "Records leave the partitions led here again."),
        LogEvent("compaction_proposed", DEBUG,
                 ("group", "partition", "generation", "up_to", "tombstones_below", "dirty_bytes"),
                 "The records of a partition led here are compacted by key below `up_to`; "
                 "`dirty_bytes` of them were never compacted. Those without a value may go below "
                 "`tombstones_below`."),
        LogEvent("partition_compacted", INFO, ("group", "partition", "generation", "bytes"),
                 "Of records with the same key the newest is left, up to the offset of the compact "
                 "entry; `bytes` were read for that."),
        LogEvent("segments_removed", INFO, ("segments", "bytes"),
                 "Nothing needs these segments of the journal any longer; their files are "
                 "unlinked."),
        LogEvent("cold_segment_written", INFO, ("segments", "records", "bytes"),
                 "The cleaner copied the records of segments with few of them into a cold "
                 "segment."),
        LogEvent("cold_segment_failed", WARNING, ("reason",),
                 "The cleaner could not write a cold segment; it tries again.",
                 "If the disk is full, free space; if it returned other bytes than were written, "
                 "replace it."),
        LogEvent("cleaner_paused", INFO, (), "An operator paused the cleaner."),
        LogEvent("cleaner_resumed", INFO, ("bytes_per_second",), "The cleaner copies again."),
        LogEvent("partition_deletion_deferred", DEBUG, ("group", "reason"),
                 "The group's log took no deletion of partitions now; the node retries."),
        LogEvent("load_window_lost", WARNING, ("window_begin_ms",),
                 "The loads of this window could not be appended to `__metrics` in time."),
        LogEvent("load_append_deferred", DEBUG, ("reason",),
                 "A record of loads was not appended; the node retries."),
    )),
    Section("Transactions", (
        LogEvent("transaction_aborted", WARNING, ("sink", "transaction"),
                 "The transaction was open for longer than `[limits]` allows.",
                 "Start the job again."),
        LogEvent("transaction_abort_deferred", INFO, ("reason",),
                 "The metadata group did not accept that; the node retries."),
        LogEvent("transaction_voided", WARNING, ("sink", "transaction"),
                 "Batches named a transaction that was never opened.",
                 "Look for a program that stages batches without opening their transaction."),
    )),
)

EVENTS = {event.name: event for section in SECTIONS for event in section.events}
