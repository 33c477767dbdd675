"""The topics of a run: some in every group, a few of them hot.

Contract.  ``create_topics`` returns when every group of the pool has a partition that lives as long
as the run, or raises ``SetupFailed``: otherwise a group without one could be blocked without being
noticed.
"""

from __future__ import annotations

from chaos.workloads.churn import create
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.client import Client

HOT_TOPICS, HOT_PARTITIONS = 2, 2
#: Further topics: many, most of them small.
TOPICS, PARTITIONS_MAX = 10, 4
#: Topics that are created to reach the groups that are still missing.
PROBES_MAX, PROBE_PARTITIONS = 30, 16
ATTEMPTS = 5


class SetupFailed(Exception):
    """Raised when the cluster could not be set up for the run."""


async def create_topics(context: WorkloadContext, groups: int) -> None:
    """Create the topics that live as long as the run, until every group holds a partition. Raises
    ``SetupFailed`` when one holds none after ``PROBES_MAX`` more topics."""
    rng = context.rng()
    async with context.client() as client:
        for number in range(HOT_TOPICS):
            context.topics.add(await _create(context, client, f"hot-{number}", HOT_PARTITIONS),
                               hot=True)
        for number in range(TOPICS):
            context.topics.add(await _create(context, client, f"topic-{number}",
                                             rng.randint(1, PARTITIONS_MAX)))
        for number in range(PROBES_MAX):
            missing = set(range(1, groups + 1)) - {place.group for place in context.topics.places}
            if not missing:
                return
            found = await _create(context, client, f"probe-{number}", PROBE_PARTITIONS)
            context.topics.add(one_of_each(found, missing))
    raise SetupFailed(f"no partition in groups {sorted(missing)} after {PROBES_MAX} topics")


def one_of_each(places: list[PartitionRef], groups: set[int]) -> list[PartitionRef]:
    """Return a partition for each of ``groups``; groups without one in ``places`` are left out."""
    return list({place.group: place for place in places if place.group in groups}.values())


async def _create(
    context: WorkloadContext, client: Client, name: str, partitions: int
) -> list[PartitionRef]:
    for _ in range(ATTEMPTS):
        places = await create(context.recorder.process(), client, context.rng(), name, partitions)
        if places is not None:
            return places
    raise SetupFailed(f"topic {name} could not be created in {ATTEMPTS} attempts")
