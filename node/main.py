"""Composition root: everything is built and wired here, nowhere else.

Contract.  ``run(path)`` returns the process's exit code: 0 stopped in order (SIGTERM, SIGINT), 2
bad configuration, 3 the data directory cannot be this node's, 4 the disk failed; any other end is a
crash with its traceback in the log.

Order of a start: configuration, directory (lock, identity, recovery), consensus with every
recovered group, then liveness, peers and clients.  No leadership before recovery is complete,
because nothing is heard or said before it.  Order of a stop: leadership is handed over, then the
tasks end, then a checkpoint is written.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

import multiraft
from multiraft._layout import BATCH_BYTES_MAX
from multiraft.errors import CodecError, ConfigError
from multiraft.leases import Liveness
from multiraft.multiraft import MultiRaft
from multiraft.storage.errors import CorruptRange
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.partial_image import PartialImage
from multiraft.storage.plans import StagedWrite
from multiraft.storage.repairer import Repairer
from multiraft.storage.settings import RELAXED
from multiraft.storage.store import Store
from multiraft.storage.strays import STRAYS_NAMED_MAX
from multiraft.types import METADATA_GROUP
from multiraft.wire.messages import Hello, LifeRow
from node import bootstrap, recover, service_manager, setup
from node.admin import Admin
from node.admission import Admission
from node.applied import AppliedEntries
from node.apply import Applying, RoleChanges
from node.arrivals import Arrivals
from node.background import Background
from node.behind import Behind
from node.bulk import Bulk
from node.checkpoints import Checkpoints
from node.clock import monotonic_ms, wall_ms
from node.complaints import Complaints
from node.config import Address, NodeConfig, load
from node.confirmations import Confirmations
from node.data_directory import draw_life, mark_refused, open_store, renew_life
from node.deadlines import Deadlines
from node.descriptors import connections_max
from node.directory import Directory
from node.disk import DiskWorker, open_probe
from node.errors import BadConfig, BadDirectory, NodeError
from node.fetch import Fetching
from node.garbage import Garbage, settle
from node.hand_over import HandOver
from node.handshake import Introduction
from node.http import Attached, HttpThread, disk_busy_ms, loop_silent_ms
from node.known_nodes import KnownNodes
from node.learners import MetadataLearners
from node.lease_events import LeaseEvents
from node.life import SERVING, STOPPING, Life
from node.listener import Listener, listen
from node.liveness import LivenessThread
from node.log import LineWriter, logger, tell_left_out, tell_suppressed
from node.loop_time import LoopTime
from node.making_way import MakingWay
from node.member_reports import MemberReports
from node.metadata import FIRST_GROUP_INCARNATION, MetadataState
from node.metadata_log import MetadataLog
from node.metadata_requests import MetadataRequests
from node.node_admin import NodeAdmin
from node.offsets import Offsets
from node.peer_listener import PeerListener
from node.peer_requests import PeerRequests
from node.peering import Peering
from node.peers import PeerLink, Peers
from node.pending import PendingAppends
from node.placement_admin import PlacementAdmin
from node.plans.service import Plans
from node.pool import Pool
from node.produce import Producing, acknowledged, ambiguous
from node.publishing import Publishing
from node.readable import Readable
from node.registration import Registration
from node.renewal import Renewal
from node.repair import Repairs
from node.replicas import Replicas
from node.rounds import Rounds
from node.scrub import Scrub
from node.security import Security
from node.session import Sessions
from node.sink_admin import SinkAdmin
from node.snapshots import IMAGE_BYTES_MAX, Snapshots
from node.space import Space
from node.staged_batches import StagedBatches
from node.statistics import Statistics
from node.survey import Surveying, measure_space
from node.switching import Switching
from node.turns import Later, Turns
from node.watchdog import Watchdog

#: How long a thread keeps the interpreter when another one wants it, in seconds.  The loop lets it
#: go with each system call, and waits for so long each time while some thread works for later:
#: with Python's 5 ms, for a tenth of a second in every round.
SWITCH_S = 0.001


class Node:
    """All parts of one node, wired."""

    def __init__(self, config: NodeConfig, store: Store, security: Security, log: logging.Logger,
                 life: Life | None = None, http: HttpThread | None = None):
        self.config = config
        self.security = security
        self.store = store
        self.log = log
        self.life = life or Life()
        self._http = http or HttpThread(config.http, self.life)
        for damage in store.damage:
            log.error("damage found", extra={"path": damage.path, "position": damage.position,
                                             "group": damage.group, "reason": damage.why})
        for stray in store.strays[:STRAYS_NAMED_MAX]:
            log.warning("a file that is not this node's is left alone",
                        extra={"path": stray.path, "reason": stray.why})
        if len(store.strays) > STRAYS_NAMED_MAX:
            log.warning("there are more files that are not this node's",
                        extra={"count": len(store.strays) - STRAYS_NAMED_MAX})
        facts = setup.facts_of(RealFilesystem(), config)
        setup.check_addresses(config, facts, log)
        self.space = Space(config.data_dir, config.storage.reserved_bytes, log, store)
        self.space.open()
        self.relaxed = store.relaxed = config.storage.durability == RELAXED
        self.plan = bootstrap.plan_of(facts)
        self.known = KnownNodes(RealFilesystem(), str(config.data_dir), config.node.id, facts)
        self.admission = Admission(
            self.known, log, store.lives,
            functools.partial(mark_refused, str(config.data_dir), log), config.raft.lease_ms)
        self._build_core()
        self._build_services()
        self._build_network()
        self._build_membership()
        if not self.known.peers():
            self._take_part()

    # ---- building -----------------------------------------------------------------------------

    def _take_part(self) -> None:
        """The others know this data directory: from now on it votes and acknowledges.  Its groups
        are those that recovery found and those of the first hour, but for those it has left."""
        if self.plan is not None:
            state = bootstrap.bootstrapped(self.plan)
            for group in state.groups_of(self.config.node.id):
                if self.store.is_removed(group):
                    continue  # its leader asks, if it is to have one again
                self.store.create_group(group, FIRST_GROUP_INCARNATION,
                                        state.initial_configuration(group))
        self.replicas.take_up()
        self.repairs.look()
        self.snapshots.compact()  # what the checkpoint that recovery began with makes unnecessary
        self.admission.taking_part.set()

    async def _admitted(self) -> None:
        """Task of a node that has others to ask."""
        await self.admission.passed()
        self._take_part()
        settle()
        self.request_round()

    def _build_core(self) -> None:
        self.core = MultiRaft(self.config.node.id, self.config.raft, self.store, random.Random(),
                              monotonic_ms(), self.store.boot_epoch)

    def _build_services(self) -> None:
        config, core, store = self.config, self.core, self.store
        self.publishing = Publishing(self, config.metrics)
        try:
            self.metadata_log = MetadataLog(core, store, self.plan, self.request_round,
                                            self._follow, lambda group:
                                            self.fetching.committed(group))
        except CodecError as error:
            raise BadDirectory(f"the checkpoint's metadata cannot be read: {error}") from error
        self.known.follow(self.metadata_log.state)
        self.turns = Turns(config.limits.turn_rows_max)
        self.directory = Directory(core, self.metadata_log, self.known)
        self.applied = AppliedEntries(store.tails)
        self.switching = Switching(core, store.tails, self.metadata_log, self.applied,
                                   lambda: self.peer_requests, self.request_round, self.log)
        self.pending = PendingAppends(ambiguous, acknowledged)
        self.producing = Producing(core, store.tails, self.directory, self.pending,
                                   config.limits.append_timeout_ms_max, StagedBatches(self),
                                   self.space, self.publishing.counts)
        self._build_reading()
        self.roles = RoleChanges()
        self.arrivals = Arrivals()
        self.statistics = Statistics(self)
        self.surveying = Surveying(core, store, self.metadata_log, config.http.lag_entries_max,
                                   lambda: measure_space(str(config.data_dir)))
        self.node_admin = NodeAdmin(core, self.metadata_log, self.known, config.node.id,
                                    lambda: self.scrub, self.turns)
        self.placement_admin = PlacementAdmin(core, store.tails, self.metadata_log, self.turns)
        self.plans = Plans(self)
        self.pool = Pool(core, self.metadata_log, config.limits.groups_max, self.log, self.turns)
        self.sinks = SinkAdmin(core, self.metadata_log, self.confirmations,
                               config.limits.run_timeout_ms, self.log, self.turns)
        others = {**self.node_admin.handlers, **self.placement_admin.handlers,
                  **self.plans.handlers, **self.pool.handlers, **self.sinks.handlers}
        self.admin = Admin(core, store, self.metadata_log, self.directory, self.statistics,
                           self.surveying, config, self.known, others, self.request_round,
                           self.roles, self.turns)
        self.sessions = Sessions(
            producing=self.producing, fetching=self.fetching, offsets=self.offsets,
            complaints=self.complaints, admin=self.admin, directory=self.directory,
            limits=config.limits, batch_bytes_max=BATCH_BYTES_MAX, cluster_id=config.cluster_id,
            node=config.node.id, boot_epoch=store.boot_epoch, request_round=self.request_round,
            arrivals=self.arrivals, turns=self.turns, log=self.log, security=self.security)
        self.deadlines = Deadlines(config.limits, lambda: self.sessions.open,
                                   lambda: bool(self.sessions.budget.starved))
        self.member_reports = MemberReports(core, self.metadata_log, lambda: self.requests)
        self.learners = MetadataLearners(core, self.metadata_log, self.request_round, self.log)
        self.replicas = Replicas(core, store, self.metadata_log, self.known.facts.groups,
                                 self.request_round, self.log)
        self.replicas.takes_part = self.admission.taking_part.is_set
        self.applying = Applying(core, store, self.metadata_log, self.pending, self.fetching,
                                 self.confirmations, self.sessions, self.roles, self.replicas,
                                 self.log, self.member_reports.note, self.applied,
                                 self.switching.look)

    def _build_reading(self) -> None:
        """What answers clients that read."""
        core, store, limits = self.core, self.store, self.config.limits
        readable = Readable(core, store.tails, self.directory)
        self.background = Background(limits)
        self.confirmations = Confirmations(core, store.tails, self.request_round)
        later = Later(self.turns, self.request_round)
        behind = Behind(self.metadata_log, self.directory, self.background, self.request_round)
        self.fetching = Fetching(readable, store, limits, self.confirmations, behind,
                                 self.background, self.request_round, self._damaged, later,
                                 self.turns, self.publishing.counts)
        self.offsets = Offsets(readable, store, self.confirmations, behind, later)
        self.complaints = Complaints(readable, store, self.background, self._damaged,
                                     self.request_round)

    def _build_network(self) -> None:
        config, core = self.config, self.core
        node, boot_epoch = config.node.id, self.store.boot_epoch
        self.disk = DiskWorker(self.store, lambda staged: self.rounds.wrote(staged),
                               self.arrivals, self.space,
                               config.storage.flush_interval_ms if self.relaxed else 0)
        self.peers = Peers(self.store, core, config.raft.frame_bytes_max, self.request_round,
                           self._damaged, self.arrivals)
        self.bulk = Bulk(self.peers.dial, self._introduction("bulk"), config.raft.frame_bytes_max,
                         config.limits.bulk_bytes_per_second)
        #: Requests are asked on connections of their own: no copy of an image delays them.
        self.control = Bulk(self.peers.dial, self._introduction("bulk"),
                            config.raft.frame_bytes_max, config.limits.bulk_bytes_per_second)
        self.liveness = LivenessThread(
            Liveness(node, boot_epoch, config.raft.lease_ms, config.raft.liveness_interval_ms),
            self._introduction("liveness"), config.limits.loop_stall_ms_max,
            config.limits.disk_stall_ms_max, self.disk, self.space)
        self.peering = Peering(self.known, self.peers, self.liveness, self._link, self.log)
        self.probe_file = open_probe(config.data_dir, self.space)
        self.lease_events = LeaseEvents(core, self.liveness, self.disk, self.request_round,
                                        self.probe_file, config.limits.disk_probe_ms)
        self.rounds = Rounds(core, self.store, self.disk, self.peers, self.applying,
                             (core, self.pending, self.fetching, self.confirmations),
                             self.lease_events.publish, self.arrivals)
        self.peer_listener = PeerListener(
            core, self.rounds.request, self.liveness, self.security, node, boot_epoch,
            self.known, config.raft.frame_bytes_max, config.limits.hello_timeout_ms, self.arrivals,
            self.log, self.bulk, self.space)
        self.checkpoints = Checkpoints(self.store, self.core, self.metadata_log, self.space)
        self.snapshots = Snapshots(core, self.store, self.metadata_log, self.checkpoints, self.bulk,
                                   config.limits, self.request_round, self.log,
                                   PartialImage(RealFilesystem(), str(config.data_dir),
                                                IMAGE_BYTES_MAX), self.space)
        self.applying.snapshot_offered = self.snapshots.offered
        self.repairer = Repairer(node, self.store, core, self._write_record)
        self.snapshots.after_install = self.replicas.look_again
        self.replicas.forget = self.repairer.groups.discard
        self.repairs = Repairs(self.repairer, self.bulk, self.request_round, self.log)
        self.replicas.made = self.repairs.created
        self.scrub = Scrub(self.store, self.disk, self._damaged, config.data_dir, config.storage)
        self.making_way = MakingWay(core, self.space, self.roles, self.request_round, self.log)
        self.watchdog = Watchdog(core, self._oldest_waiting, self.request_round,
                                 config.limits.group_stall_ms_max, self.log)

    def _build_membership(self) -> None:
        config = self.config
        self.peering.peer_listener = self.peer_listener
        self.peering.changed()
        record = bootstrap.record_of(config.node, self.store.incarnation, self.store.boot_epoch,
                                     multiraft.__version__, wall_ms())
        handlers = {**self.node_admin.peer_handlers, **self.placement_admin.peer_handlers,
                    **self.switching.handlers, **self.plans.peer_handlers,
                    **self.sinks.peer_handlers}
        self.peer_requests = PeerRequests(self.control, handlers, self.admin.refusal,
                                          self.bulk.handlers)
        self.bulk.handlers.update(self.publishing.handlers)
        self.renewal = Renewal(self.admission, self.known, lambda: self.store.durable_position,
                               functools.partial(renew_life, config), self.peers.dial,
                               self._introduction("bulk"), self.log)
        self.requests = MetadataRequests(self.core, handlers, self.peer_requests)
        self.switching.metadata_requests = lambda: self.requests
        self.registration = Registration(self.requests, self.peer_requests, self.known, record,
                                         self.admission, self.peering, self.log)
        for difference in bootstrap.edited(config, self.known.facts):
            self.log.warning("[cluster] differs from the cluster, which wins: the table counts for "
                             "a new cluster only", extra={"difference": difference})

    def _follow(self, state: MetadataState) -> None:
        """Metadata were applied."""
        self.peering.follow(state)
        self.switching.look()

    def _link(self, peer: int, where: Address) -> PeerLink:
        return PeerLink(peer, where.host, where.port, self._introduction("append"),
                        self.config.limits.peer_outbox_bytes_max, self.admission, self.log)

    def _introduction(self, connection: str):
        """(peer) -> what a connection of this class begins with."""
        hello = Hello(connection, self.config.cluster_id, self.config.node.id,
                      self.store.boot_epoch, incarnation=self.store.incarnation)

        def begin(peer: int) -> Introduction:
            after = self.admission.after(peer)
            return Introduction(self.security, hello._replace(
                process=self.admission.number(peer),
                after=LifeRow(*after) if after is not None else None), peer)
        return begin

    def request_round(self) -> None:
        """A round is due."""
        self.rounds.request()

    def _oldest_waiting(self) -> dict[int, int]:
        """Group -> index of its oldest proposal that waits here."""
        oldest = self.pending.oldest()
        command = self.metadata_log.oldest_waiting
        if command:
            oldest[METADATA_GROUP] = command
        return oldest

    def _damaged(self, error: CorruptRange) -> None:
        """A cold read found a damaged entry: this replica is out, the others serve the group."""
        self.repairs.damaged(error)

    def _write_record(self, staged: StagedWrite) -> None:
        """An entry of the lane's own, written between rounds."""
        self.disk.submit(staged)
        self.disk.start_next()

    # ---- running ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then hand over and stop."""
        try:
            await self._serve()
        finally:
            self.liveness.stop()  # whatever happened: a node that ends supports nobody

    async def _serve(self) -> None:
        config = self.config
        clients = Listener(listen(config.node.client_address), self.sessions.handle,
                           connections_max(config.limits, self.log),
                           config.limits.connections_per_address_max)
        peers = Listener(listen(config.node.peer_address), self.peer_listener.handle,
                         config.limits.peer_connections_max,
                         config.limits.connections_per_address_max)
        self.listeners = clients, peers
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.disk.run)
                await nursery.start(self.rounds.run)
                await nursery.start(self.background.run)
                await nursery.start(self.admin.run)
                nursery.start_soon(self.turns.run)
                nursery.start_soon(self.rounds.serve)
                nursery.start_soon(self.rounds.tick)
                nursery.start_soon(self.peers.run)
                nursery.start_soon(self.lease_events.run)
                nursery.start_soon(self.checkpoints.run)
                if self.relaxed:
                    nursery.start_soon(self.disk.flush)
                for task in (self.snapshots.run, self.bulk.close_idle, self.control.close_idle,
                             self.switching.run, self.plans.run, self.watchdog.run, self.known.run,
                             self.pool.run, self.registration.run, self.member_reports.run,
                             self.learners.run, self.deadlines.run, self.space.run, self.scrub.run,
                             self.making_way.run, self.sinks.run, self.repairs.run,
                             self.disk.prepare, self.disk.seal, self.publishing.run,
                             self.surveying.run, self.renewal.run):
                    nursery.start_soon(task)
                if not self.admission.taking_part.is_set():
                    nursery.start_soon(self._admitted)
                await nursery.start(self._reload_security)
                nursery.start_soon(tell_suppressed, self.log)
                await nursery.start(peers.serve)
                await nursery.start(clients.serve)
                self.liveness.start()
                self._show()
                self.log.info("ready", extra={"client_address": str(config.node.client_address),
                                              "boot_epoch": self.store.boot_epoch,
                                              "groups": len(self.store.groups)})
                service_manager.tell(os.environ, service_manager.READY)
                async for _signal in signals:
                    break
                await self._hand_over()
                nursery.cancel_scope.cancel()

    async def _reload_security(self, task_status=trio.TASK_STATUS_IGNORED) -> None:
        """SIGHUP: certificates and secrets are read again, for new connections."""
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            task_status.started()
            async for _signal in signals:
                try:
                    self.security.reload()
                except ConfigError as error:
                    self.log.error("security not reloaded", extra={"reason": str(error)})
                else:
                    self.log.info("security reloaded")

    def _show(self) -> None:
        """From now on HTTP answers for this node."""
        self.life.phase = SERVING
        self._http.attach(Attached(
            trio.lowlevel.current_trio_token(),
            lambda answer: self.surveying.request(
                lambda survey: answer(self.statistics.sample(survey))),
            lambda: loop_silent_ms(self.liveness), lambda: disk_busy_ms(self.disk)))

    async def _hand_over(self) -> None:
        """Groups led here are handed over one after the other, for ``shutdown_ms_max`` at most, and
        serve until then.  Then what is still open is answered, and no round follows."""
        self.life.phase = STOPPING
        service_manager.tell(os.environ, service_manager.STOPPING)
        self.log.info("stopping", extra={"leads": self.core.status.led_count})
        with trio.move_on_after(self.config.limits.shutdown_ms_max / 1000):
            await HandOver(self.core, self.roles, self.request_round, self.log).run()
        self.sessions.stopping = True
        self.applying.stop()
        self.rounds.stop()
        self.log.info("stopped", extra={"leads": self.core.status.led_count})

    def close(self) -> None:
        """After ``run``: a last checkpoint, then the files.  Raises ``DiskFailed``."""
        self.liveness.stop()
        os.close(self.probe_file)
        self.arrivals.close()
        self.checkpoints.write_last()
        self.store.close()


def init(config_path: Path, servers: Sequence[str] = ()) -> int:
    """Give the data directory its identity; returns the exit code."""
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
    """Run a node; returns the exit code.  ``servers``: the cluster to join when the data directory
    has no identity yet."""
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
        log.error("stopped", extra={"reason": str(failure)})
        print(f"multiraft node: {failure}", file=sys.stderr)
    return failures[0].exit_code if failures else 0


def recover_metadata(config_path: Path, accept_data_loss: bool) -> int:
    """Offline forced recovery of the metadata group; returns the exit code."""
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
        unheard = _start(http)  # before recovery, which it tells of
        if unheard is not None and config.http_is_optional:
            log.warning("metrics and health are not served", extra={"reason": str(unheard)})
            unheard = None
        store = open_store(config, draw_life(), life.recovery)
        if unheard is not None:
            store.close()
            raise unheard
        life.recovered()
        node = Node(config, store, security, log, life, http)
        settle()
        sys.setswitchinterval(SWITCH_S)
        trio.run(node.run, instruments=[LoopTime(node.core), Garbage()])
        node.close()
    except BaseException as error:
        if not isinstance(error, NodeError) and _crashes(error):
            log.critical("crashed", exc_info=True)
        raise


def _load_security(config: NodeConfig) -> Security:
    """Raises ``BadConfig``."""
    try:
        return Security(config.security, config.cluster_id)
    except ConfigError as error:
        raise BadConfig(str(error)) from error


def _start(http: HttpThread) -> BadConfig | None:
    """Why it cannot serve, or None.  Not raised at once: who starts a second process on a data
    directory has to hear that, and not that a port is in use, which follows from it."""
    try:
        http.start()
    except BadConfig as error:
        return error
    return None


def _crashes(error: BaseException) -> bool:
    """Whether there is more to it than what a ``NodeError`` says."""
    return (not isinstance(error, BaseExceptionGroup)
            or error.split(NodeError)[1] is not None)


def _leaves(group: BaseExceptionGroup) -> list:
    found: list = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
