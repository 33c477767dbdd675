"""Start and stop of a node's process; ``node.assembly`` builds the parts.

Contract. ``run(path)`` returns the exit code of the process: 0 stopped in order (SIGTERM, SIGINT),
2 bad configuration, 3 the data directory cannot be this node's, 4 the disk failed. Any other end is
a crash with its traceback in the log.

Order of a start: configuration, data directory (lock, identity, recovery), consensus with every
recovered group, then liveness, peers and clients. A node leads no group before recovery is
complete, because it neither receives nor sends a message before. Order of a stop: leadership is
transferred, then the tasks end, then a checkpoint is written.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import trio

from multiraft.errors import ConfigError
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.store import Store
from multiraft.storage.strays import STRAYS_NAMED_MAX
from node import bootstrap, recover, setup
from node.assembly.admin import build_admin
from node.assembly.clients import build_clients
from node.assembly.compaction import build_compaction
from node.assembly.driver import build_driver
from node.assembly.env import build_env
from node.assembly.kafka import build_kafka
from node.assembly.membership import build_membership
from node.assembly.metadata import build_metadata
from node.assembly.peers import build_peers
from node.assembly.reads import build_reads
from node.assembly.rebalance import build_rebalance
from node.assembly.replicas import build_replicas
from node.assembly.retention import build_retention
from node.assembly.status import build_status
from node.assembly.storage import build_storage
from node.clients.listener import Listener, listen
from node.clock import monotonic_ms
from node.config import NodeConfig, load
from node.data_directory import draw_process_number, open_store
from node.errors import BadConfig, NodeError
from node.loop.fd_limits import connections_max
from node.loop.gc_schedule import Garbage, freeze
from node.loop.loop_time import LoopTime
from node.metadata.state_machine import FIRST_GROUP_INCARNATION
from node.observability import sd_notify
from node.observability.http import Attached, HttpThread, disk_busy_ms, loop_silent_ms
from node.observability.logging import LineWriter, logger, tell_left_out, tell_suppressed
from node.observability.phase import SERVING, STOPPING, Life
from node.peers.security import Security
from node.replicas.drain_leadership import LeadershipDrain
from node.replicas.orderly_stop import OrderlyStop

#: Longest time that a thread keeps the interpreter when another thread waits for it, in seconds.
#: The loop releases it with each system call, and waits up to this long each time while a
#: background thread computes. Python's default of 5 ms would cost a tenth of a second per round.
SWITCH_S = 0.001


class Node:
    """All parts of one node, by subject (``node.assembly``)."""

    def __init__(self, config: NodeConfig, store: Store, security: Security, log: logging.Logger,
                 life: Life | None = None, http: HttpThread | None = None):
        self.config = config
        self.security = security
        self.store = store
        self.log = log
        self.life = life or Life()
        self._http = http or HttpThread(config.http, self.life)
        _report_findings(store, log)
        facts = setup.facts_of(RealFilesystem(), config)
        setup.check_addresses(config, facts, log)
        env = build_env(config, store, security, log, self.life, random.Random())
        self.env, self.core = env, env.core
        self.metadata = build_metadata(env, facts)
        self.storage = build_storage(env)
        self.peers = build_peers(env, self.storage, self.metadata)
        self.reads = build_reads(env, self.storage, self.metadata)
        self.retention = build_retention(env, self.metadata, self.peers, self.reads)
        self.compaction = build_compaction(env, self.metadata, self.peers, self.reads,
                                           self.retention)
        self.admin = build_admin(env, self.storage, self.metadata, self.peers, self.reads)
        self.clients = build_clients(env, self.metadata, self.peers, self.reads, self.admin,
                                     self.retention)
        self.replicas = build_replicas(env, self.storage, self.metadata, self.peers, self.reads,
                                       self.admin)
        self.kafka = build_kafka(env, self.metadata, self.peers, self.reads, self.admin,
                                 self.clients)
        self.rebalance = build_rebalance(env, self.storage, self.metadata, self.peers, self.reads,
                                         self.admin, self.clients)
        self.driver = build_driver(env, self.storage, self.metadata, self.peers, self.reads,
                                   self.admin, self.clients, self.replicas, self.retention,
                                   self.compaction)
        self.membership = build_membership(env, self.metadata, self.peers, self.replicas,
                                           self.driver)
        self.status = build_status(env, self.storage, self.metadata, self.peers, self.reads,
                                   self.admin, self.clients, self.replicas, self.rebalance,
                                   self.driver, self.retention, self.compaction, self.kafka)
        for old, new in config.renamed_keys:
            log.warning("config_key_renamed", extra={"key": old, "new_key": new})
        for difference in bootstrap.edited(config, self.metadata.known.facts,
                                           self.metadata.log.state):
            log.warning("cluster_table_ignored", extra={"difference": difference})
        if not self.metadata.known.peers():
            self._take_part()

    def request_round(self) -> None:
        """Request a round from the loop thread."""
        self.env.loop.request()

    # ---- taking part --------------------------------------------------------------------------

    def _take_part(self) -> None:
        """Add this node's replicas to the core, and vote and acknowledge from now on: the peers
        know this data directory. The replicas are those that recovery found, and those of a new
        cluster except the ones that were removed."""
        plan = self.metadata.plan
        if plan is not None:
            state = bootstrap.bootstrapped(plan)
            for group in state.groups_of(self.config.node.id):
                if self.store.is_removed(group):
                    continue  # if the replica is wanted again, its leader will append to it
                self.store.create_group(group, FIRST_GROUP_INCARNATION,
                                        state.initial_configuration(group))
        replicas = self.replicas
        replicas.replicas.load()
        replicas.repairs.add_quarantined()
        replicas.record_copies.add_incomplete()
        replicas.snapshots.compact()  # entries that the recovered checkpoint covers
        self.driver.changes.replicas_added()
        self.metadata.admission.admitted.set()

    async def _admitted(self) -> None:
        """Wait until the peers have admitted this node, then add its replicas to the core, and vote
        and acknowledge."""
        await self.metadata.admission.wait_admitted()
        self._take_part()
        freeze()
        self.request_round()

    # ---- running ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then transfer leadership and stop."""
        try:
            await self._serve()
        finally:
            self.peers.liveness.stop()  # in any case: a node that ends must support no other

    async def _serve(self) -> None:
        config, limits = self.config, self.config.limits
        clients = Listener(listen(config.node.client_address), self.clients.connections.handle,
                           connections_max(limits, self.log), limits.connections_per_address_max,
                           self.status.client_connections)
        peers = Listener(listen(config.node.peer_address), self.membership.peer_listener.handle,
                         limits.peer_connections_max, limits.connections_per_address_max)
        kafka = self._kafka_listener()
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                for started in (self.storage.disk.run, self.driver.rounds.run,
                                self.reads.background.run, self.admin.requests.run,
                                self.kafka.tasks.run):
                    await nursery.start(started)
                for task in self._tasks():
                    nursery.start_soon(task)
                if not self.metadata.admission.admitted.is_set():
                    nursery.start_soon(self._admitted)
                await nursery.start(self._reload_security)
                nursery.start_soon(tell_suppressed, self.log)
                await nursery.start(peers.serve)
                await nursery.start(clients.serve)
                if kafka is not None:
                    await nursery.start(kafka.serve)
                self.peers.liveness.start()
                self._show()
                self.log.info("node_started", extra={
                    "client_address": str(config.node.client_address),
                    "boot_epoch": self.store.boot_epoch, "groups": len(self.store.groups)})
                sd_notify.tell(os.environ, sd_notify.READY)
                async for _signal in signals:
                    break
                await self._hand_over()
                nursery.cancel_scope.cancel()

    def _kafka_listener(self) -> Listener | None:
        """Return the listener for Kafka's clients, None if they are not served. Their connections
        count together with those of the client port. Raises ``BadConfig`` if the address is in
        use."""
        address, limits = self.config.kafka.listen_address(), self.config.limits
        if address is None:
            return None
        return Listener(listen(address), self.kafka.connections.handle,
                        connections_max(limits, self.log), limits.connections_per_address_max,
                        self.status.client_connections)

    def _tasks(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield the tasks that run until the node stops, in the order in which they start."""
        storage, peers, admin, replicas = self.storage, self.peers, self.admin, self.replicas
        rebalance, driver, membership = self.rebalance, self.driver, self.membership
        yield self.env.turns.run
        yield driver.rounds.serve
        yield driver.rounds.tick
        yield peers.links.run
        yield peers.lease_events.run
        yield replicas.checkpoints.run
        if self.store.relaxed:
            yield storage.disk.flush
        yield from (
            replicas.snapshots.run,
            replicas.snapshots.run_groups,
            replicas.record_copies.run,
            peers.bulk.close_idle,
            peers.control.close_idle,
            peers.passed_on.close_idle,
            peers.reads.close_idle,
            replicas.partition_switcher.run,
            replicas.log_start_propagation.run,
            replicas.partition_deletion.run,
            self.retention.task.run,
            self.compaction.task.run,
            rebalance.plans.run,
            driver.watchdog.run,
            driver.changes.run,
            self.metadata.known.run,
            admin.pool.run,
            membership.registration.run,
            replicas.member_reports.run,
            replicas.metadata_learners.run,
            self.clients.connection_reaper.run,
            self.kafka.connection_reaper.run,
            self.env.space.run,
            storage.scrub.run,
            replicas.removal.run,
            storage.cleaner.run,
            replicas.leadership_shedder.run,
            admin.sinks.run,
            replicas.repairs.run,
            storage.disk.prepare,
            storage.disk.seal,
            rebalance.load_publisher.run,
            admin.group_health.run,
            self.status.largest_topics.run,
            membership.renewal.run,
        )

    async def _reload_security(
            self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read certificates and secrets again at each SIGHUP, for new connections, until cancelled.
        An error is logged, and the earlier ones stay in force."""
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            task_status.started()
            async for _signal in signals:
                try:
                    self.security.reload()
                except ConfigError as error:
                    self.log.error("security_reload_failed", extra={"reason": str(error)})
                else:
                    self.log.info("security_reloaded")

    def _show(self) -> None:
        """Enter the phase ``serving``, and let HTTP answer for this node from now on."""
        self.life.phase = SERVING
        group_health, statistics = self.admin.group_health, self.status.statistics
        liveness, disk = self.peers.liveness, self.storage.gather
        self._http.attach(Attached(
            trio.lowlevel.current_trio_token(),
            lambda answer: group_health.request(lambda survey: answer(statistics.sample(survey))),
            lambda: loop_silent_ms(liveness), lambda: disk_busy_ms(disk)))

    async def _hand_over(self) -> None:
        """Stop in order, except for what ends with the tasks (``node.replicas.orderly_stop``)."""
        drain = LeadershipDrain(self.core, self.admin.roles, self.request_round, self.log,
                                monotonic_ms)
        await OrderlyStop(self.core, drain, self._announce_stop, self.clients.sessions,
                          self.driver.applier, self.driver.rounds, self.driver.changes.write,
                          self.log, self.config.limits.shutdown_timeout_ms).run()

    def _announce_stop(self) -> None:
        self.life.phase = STOPPING
        self.peers.liveness.announce_stop()
        sd_notify.tell(os.environ, sd_notify.STOPPING)

    def close(self) -> None:
        """Write a last checkpoint, then close the files. Called after ``run``. Raises
        ``DiskFailed`` if that cannot be written, except on a full disk."""
        self.peers.liveness.stop()
        os.close(self.storage.probe_file)
        self.env.poller.close()
        self.replicas.checkpoints.write_last()
        self.store.close()


def _report_findings(store: Store, log: logging.Logger) -> None:
    """Log the damage and the stray files that recovery found."""
    for damage in store.damage:
        log.error("damage_found", extra={
            "path": damage.path, "journal_offset": damage.position, "group": damage.group,
            "reason": damage.why})
    for stray in store.strays[:STRAYS_NAMED_MAX]:
        log.warning("stray_file_ignored", extra={"path": stray.path, "reason": stray.why})
    if len(store.strays) > STRAYS_NAMED_MAX:
        log.warning("stray_files_ignored",
                    extra={"files": len(store.strays) - STRAYS_NAMED_MAX})


def init(config_path: Path, servers: Sequence[str] = ()) -> int:
    """Give the data directory its identity, or find it there, and print it. Return the exit code.
    ``servers``: the cluster to join."""
    try:
        config = load(config_path)
        found, is_new = setup.initialise(RealFilesystem(), config, servers, setup.connect)
    except NodeError as error:
        print(f"multiraft node: {error}", file=sys.stderr)
        return error.exit_code
    what = "is now" if is_new else "is already"
    print(f"{config.data_dir} {what} node {found.node} of cluster {found.cluster.hex()}",
          file=sys.stderr)
    return 0


def run(config_path: Path, log_format: str = "json", log_level: str = "info",
        servers: Sequence[str] = ()) -> int:
    """Run a node until it stops, and return the exit code. ``servers``: the cluster to join if the
    data directory has no identity yet."""
    try:
        config = load(config_path)
        if servers:
            setup.initialise(RealFilesystem(), config, servers, setup.connect)
        config = setup.resolved(config, setup.identity_of(RealFilesystem(), config))
    except NodeError as error:
        print(f"multiraft node: {error}", file=sys.stderr)
        return error.exit_code
    writer = LineWriter(sys.stdout)
    try:
        return _logged(config, logger(config.node.id, writer, log_format, log_level))
    finally:
        writer.close()


def _logged(config: NodeConfig, log: logging.Logger) -> int:
    failures: list[NodeError] = []
    life = Life()
    http = HttpThread(config.http, life)
    try:
        _run(config, log, life, http)
    except* NodeError as group:
        failures.extend(_leaves(group))
    finally:
        http.stop()
        tell_left_out(log)
    for failure in failures:
        log.error("node_failed", extra={"reason": str(failure)})
        print(f"multiraft node: {failure}", file=sys.stderr)
    return failures[0].exit_code if failures else 0


def recover_metadata(config_path: Path, accept_data_loss: bool) -> int:
    """Print the metadata replica of an offline node and, with ``accept_data_loss``, recover the
    group from it by force. Return the exit code; 1 = nothing was changed."""
    try:
        config = load(config_path)
        config = setup.resolved(config, setup.identity_of(RealFilesystem(), config))
        store = open_store(config)
        try:
            replica = recover.inspect(store)
            print(f"metadata group on node {config.node.id}: {recover.told(replica)}")
            if not accept_data_loss:
                print(recover.NOT_ACCEPTED, file=sys.stderr)
                return 1
            incarnation = recover.recover(store, config, random.Random())
        finally:
            store.close()
    except NodeError as error:
        print(f"multiraft node: {error}", file=sys.stderr)
        return error.exit_code
    print(f"node {config.node.id} is the only voter of incarnation {incarnation}")
    return 0


def _run(config: NodeConfig, log: logging.Logger, life: Life, http: HttpThread) -> None:
    try:
        security = _load_security(config)
        unheard = _start(http)  # before recovery, whose progress it reports
        if unheard is not None and config.http_is_optional:
            log.warning("http_disabled", extra={"reason": str(unheard)})
            unheard = None
        store = open_store(config, draw_process_number(), life.recovery)
        if unheard is not None:
            store.close()
            raise unheard
        life.recovered()
        node = Node(config, store, security, log, life, http)
        freeze()
        sys.setswitchinterval(SWITCH_S)
        trio.run(node.run, instruments=[LoopTime(node.core), Garbage()])
        node.close()
    except BaseException as error:
        if not isinstance(error, NodeError) and _crashes(error):
            log.critical("node_crashed", exc_info=True)
        raise


def _load_security(config: NodeConfig) -> Security:
    """Load secrets and certificates. Raises ``BadConfig`` if a file cannot be used."""
    try:
        return Security(config.security, config.cluster_id)
    except ConfigError as error:
        raise BadConfig(str(error)) from error


def _start(http: HttpThread) -> BadConfig | None:
    """Start HTTP. Return the error if it cannot listen, None otherwise. The caller raises it later:
    a second process on a data directory must report that, and not a port in use."""
    try:
        http.start()
    except BadConfig as error:
        return error
    return None


def _crashes(error: BaseException) -> bool:
    """Return True if ``error`` is a crash: it is or contains another error than ``NodeError``."""
    return (not isinstance(error, BaseExceptionGroup)
            or error.split(NodeError)[1] is not None)


def _leaves(group: BaseExceptionGroup) -> list:
    found: list = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
