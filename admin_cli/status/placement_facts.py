"""The placement of a topic's partitions and its reasons, combined from several nodes' answers.

Contract.  The values here are those of the JSON.  The metadata tell the group of a partition; the
leaders of its two groups tell the progress of a switch, each of its own replica.
"""

from __future__ import annotations

from typing import Any

from admin_cli.failures import NotFound
from multiraft.client import blocking
from multiraft.wire import errors as wire

#: Steps of a switch: the last one taken, and the next one that it waits for.
DECIDED, SEALED, OPENED = "decided", "sealed", "opened"
WAITS = {DECIDED: "the leader of group {group} has to seal it; appends continue there",
         SEALED: "the leader of group {to_group} has to open it; appends wait",
         OPENED: "the metadata have to publish it; appends continue in group {to_group}"}


def placements(client: Any, topic: str, partition: int | None) -> list[dict[str, Any]]:
    """Return the placement of each partition, or of one: its groups with offsets and reasons, and a
    switch under way. Raises ``NotFound`` if the topic has no such partition."""
    rows = client.explain_placement(topic)
    if partition is not None and not 0 <= partition < len(rows):
        raise NotFound(f"topic {topic!r} has partitions 0 to {len(rows) - 1}, not {partition}.")
    leaders = {row.group: row.leader for row in client.group_list()}
    return [_placement(client, row, leaders) for row in rows
            if partition in (None, row.partition)]


def topic_groups(client: Any, topic: str) -> dict[int, tuple[int, int]]:
    """Return partition -> its incarnation, and the group that takes its appends."""
    return {row.partition: (row.incarnation, row.epoch_history[-1].group)
            for row in client.explain_placement(topic)}


def _placement(client: Any, row: Any, leaders: dict[int, int]) -> dict[str, Any]:
    ends = [link.start_offset for link in row.epoch_history[1:]] + [None]
    links = [{"epoch": link.epoch, "group": link.group, "start_offset": link.start_offset,
              "end_offset": end, "leader": leaders.get(link.group) or None,
              "reason": _reason(link, row.hashed_group)}
             for link, end in zip(row.epoch_history, ends, strict=True)]
    found = {"partition": row.partition, "incarnation": row.incarnation,
             "epoch": row.epoch_history[-1].epoch, "group": row.epoch_history[-1].group,
             "hashed_group": row.hashed_group, "links": links, "switch": None}
    if row.switch_epoch:
        step = _step(client, row, leaders)
        found["switch"] = {"epoch": row.switch_epoch, "to_group": row.switch_group, "step": step,
                           "waits_for": WAITS[step].format(group=found["group"],
                                                           to_group=row.switch_group)}
    return found


def _reason(link: Any, hashed_group: int) -> str:
    """Return the reason why a part of a partition is in its group."""
    if link.epoch == 1:
        return ("the hash puts it there" if link.group == hashed_group else
                f"group {hashed_group}, where the hash puts it, was above its share when the topic "
                f"was created")
    if link.group == hashed_group:
        return "switched there, where the hash puts it"
    return f"switched there; the hash puts it into group {hashed_group}"


def _step(client: Any, row: Any, leaders: dict[int, int]) -> str:
    """Return the last step that a switch under way has taken, as far as the leaders of both groups
    answer: opened, sealed, or else decided."""
    addresses = {node.id: node.client_address for node in client.cluster_status().nodes}
    here = _replica(client, row, row.epoch_history[-1].group, leaders, addresses)
    there = _replica(client, row, row.switch_group, leaders, addresses)
    if there is not None and there.epoch >= row.switch_epoch:
        return OPENED
    return SEALED if here is not None and here.sealed else DECIDED


def _replica(client: Any, row: Any, group: int, leaders: dict[int, int],
             addresses: dict[int, str]) -> Any:
    """Return the partition as the leader of a group has it; None = that leader does not answer."""
    address = addresses.get(leaders.get(group, 0))
    if address is None:
        return None
    try:
        replicas = client.partition_replicas(row.incarnation, address)
    except (wire.RequestError, blocking.NoNodeAnswered):
        return None
    return next((replica for replica in replicas if replica.group == group), None)
