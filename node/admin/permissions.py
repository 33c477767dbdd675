"""Permissions that administrative requests of native clients need.

Contract. ``denied`` asks for everything that a request needs, before any of it is done, and returns
the reason of a refusal. A request is refused as a whole. Each kind of request is in one of the
tables here; appends, fetches, offsets and reports of corruption are asked for by their handlers,
topic by topic. Nodes and their addresses (``Metadata`` without topics) are for everyone, as in
Kafka: a client has to find the nodes before it can be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from multiraft.wire import members, nodes, placements, plans, pool, settings, sinks, sizes
from multiraft.wire import messages as wire
from node.access import ANY_NAME, CLUSTER_NAME, Operation, ResourceKind, denial

if TYPE_CHECKING:
    from node.clients.session import Session
    from node.metadata.state_machine import MetadataState

#: Operation, kind and name of a resource.
Needed = tuple[Operation, ResourceKind, str]
#: What a request needs, by the metadata applied here.
Needs = Callable[[Any, "MetadataState"], Iterable[Needed]]

_TOPIC, _CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER


def _on_cluster(operation: Operation) -> Needs:
    needed = ((operation, _CLUSTER, CLUSTER_NAME),)
    return lambda request, state: needed


def _on_any(operation: Operation, kind: ResourceKind) -> Needs:
    needed = ((operation, kind, ANY_NAME),)
    return lambda request, state: needed


def _on_topic(operation: Operation, field: str) -> Needs:
    return lambda request, state: ((operation, _TOPIC, getattr(request, field)),)


def _on_settings(operation: Operation) -> Needs:
    """Return what a request about settings needs: without a topic it is for the cluster's."""
    return lambda request, state: ((operation, _TOPIC, request.topic) if request.topic
                                   else (operation, _CLUSTER, CLUSTER_NAME),)


def _on_topics_of(operation: Operation, incarnations: Iterable[int], state: MetadataState
                  ) -> Iterable[Needed]:
    """Return what a request needs for partitions, those left out that do not exist."""
    found = map(state.locate, incarnations)
    names = dict.fromkeys(place.topic.name for place in found if place is not None)
    return [(operation, _TOPIC, name) for name in names]


def _on_sinks(request: Any, state: MetadataState) -> Iterable[Needed]:
    name, _batch = state.sinks.named(sinks.TransactionRef(request.sink, request.transaction))
    return ((Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name),)


#: Requests that only describe the cluster, and requests that change it.
_DESCRIBE_CLUSTER = (
    wire.ClusterStatus, wire.ListGroups, wire.NodeStatus, wire.GroupDescribe, nodes.ListNodes,
    nodes.DescribeNode, plans.PlanStatus, plans.PlacementFacts, plans.GroupLoads,
    plans.PartitionLoads, pool.PoolStatus)
_ALTER_CLUSTER = (
    wire.TransferLeadership, members.RecoverGroup, nodes.RemoveNode, nodes.ScrubNode,
    nodes.ControlCleaner, placements.SwitchPartition, plans.ApplyPlan, plans.ControlPlan,
    plans.SetNodeState, pool.GrowPool)

#: Request -> what it needs.
NEEDS: dict[type, Needs] = {
    **dict.fromkeys(_DESCRIBE_CLUSTER, _on_cluster(Operation.DESCRIBE)),
    **dict.fromkeys(_ALTER_CLUSTER, _on_cluster(Operation.ALTER)),
    members.GroupMembers: lambda request, state: ((
        Operation.ALTER if request.voters else Operation.DESCRIBE, _CLUSTER, CLUSTER_NAME),),
    nodes.JoinCluster: _on_cluster(Operation.CLUSTER_ACTION),
    wire.InitProducer: _on_cluster(Operation.IDEMPOTENT_WRITE),
    wire.Metadata: lambda request, state: [
        (Operation.DESCRIBE, _TOPIC, name) for name in dict.fromkeys(request.topics or ())],
    wire.ListTopics: _on_any(Operation.DESCRIBE, _TOPIC),
    wire.DeleteTopic: _on_topic(Operation.DELETE, "name"),
    wire.AddPartitions: _on_topic(Operation.ALTER, "name"),
    wire.DeleteRecords: lambda request, state: _on_topics_of(
        Operation.DELETE, (row.incarnation for row in request.partitions), state),
    sizes.TopicSizes: _on_any(Operation.DESCRIBE, _TOPIC),
    sizes.PartitionSizes: _on_topic(Operation.DESCRIBE, "topic"),
    placements.ExplainPlacement: _on_topic(Operation.DESCRIBE, "topic"),
    placements.PartitionReplicas: lambda request, state: _on_topics_of(
        Operation.DESCRIBE, (request.incarnation,), state),
    settings.AlterSettings: _on_settings(Operation.ALTER_CONFIGS),
    settings.DescribeSettings: _on_settings(Operation.DESCRIBE_CONFIGS),
    sinks.BeginTransaction: lambda request, state: ((
        Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.sink),),
    sinks.CommitTransaction: _on_sinks,
    sinks.AbortTransaction: _on_sinks,
    **dict.fromkeys((sinks.TransactionStates, sinks.ResolveTransactions, sinks.StagedTopics,
                     sinks.SinkList),
                    _on_any(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)),
}


def may_create(session: Session, name: str) -> bool:
    """Return True if a client may create a topic: any one of the cluster, or one of that name."""
    return (session.may(Operation.CREATE, _CLUSTER, CLUSTER_NAME)
            or session.may(Operation.CREATE, _TOPIC, name))


def denied(session: Session, request: Any, state: MetadataState) -> str:
    """Return the reason for which the client may not make the request; "" = it may.  O(topics that
    it names)."""
    if type(request) is wire.CreateTopic:
        needed: Iterable[Needed] = () if may_create(session, request.name) else (
            (Operation.CREATE, _TOPIC, request.name),)
    else:
        needed = NEEDS[type(request)](request, state)
    for operation, kind, name in needed:
        if not session.may(operation, kind, name):
            return denial(session.principal, operation, kind, name)
    return ""
