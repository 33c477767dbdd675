"""Carrying plans out: what is replicated of a plan, what is decided next, and who does it.

    commands    what stands in the metadata group's log of it
    moves       the phases of one move
    state       the plan under way, as a part of the metadata state machine
    world       what is observed: groups by their leaders, nodes by themselves
    decide      (plan, world) -> the next steps; no I/O and no clock
    replicas    the same for one change of replicas
    safety      when a plan pauses itself, and when it goes on
    driver      the task that looks, decides and does, at the metadata leader
    preferring  hands groups back to the leaders that a plan gave them
    requests    what clients and other nodes ask
"""
