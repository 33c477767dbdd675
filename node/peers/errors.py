"""Errors of requests to other nodes, without the connections that raise them."""

from __future__ import annotations


class NoAnswer(Exception):
    """The peer cannot be reached, refuses, or did not reply in time."""


class NotSent(NoAnswer):
    """Earlier requests to the peer took too long: this one was not sent."""
