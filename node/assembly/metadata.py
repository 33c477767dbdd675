"""Parts with the state of the cluster: its nodes, and the locations of partitions and groups."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from multiraft.errors import CodecError
from multiraft.storage.filesystem import RealFilesystem
from node import bootstrap
from node.assembly.env import NodeEnv
from node.clients.router import Router
from node.data_directory import record_refusal
from node.errors import BadDirectory
from node.metadata.log import MetadataLog
from node.metadata.state_machine import Bootstrap
from node.peers.admission import Admission
from node.peers.registry import Facts, PeerRegistry


@dataclass(frozen=True, slots=True)
class MetadataParts:
    """Known nodes, admission, the state of the metadata group, and the router over it."""

    plan: Bootstrap | None  # of a new cluster
    known: PeerRegistry
    admission: Admission
    log: MetadataLog
    directory: Router


def build_metadata(env: NodeEnv, facts: Facts) -> MetadataParts:
    """Restore the known nodes of the data directory and the metadata of the last checkpoint. Raises
    ``BadConfig`` if the new cluster's replicas cannot be placed, ``BadDirectory`` for malformed
    metadata."""
    config, store = env.config, env.store
    directory = str(config.data_dir)
    plan = bootstrap.plan_of(facts)
    known = PeerRegistry(RealFilesystem(), directory, config.node.id, facts)
    admission = Admission(known, env.log, store.boot_ids,
                          functools.partial(record_refusal, directory, env.log),
                          config.raft.lease_ms)
    try:
        log = MetadataLog(env.core, store, plan, env.loop.request)
    except CodecError as error:
        raise BadDirectory(f"the checkpoint's metadata cannot be read: {error}") from error
    known.follow(log.state)
    return MetadataParts(plan, known, admission, log, Router(env.core, log, known))
