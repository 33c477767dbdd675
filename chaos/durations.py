"""Spans of time on the command line: bounded, and numbers."""

from __future__ import annotations

import math

import click


class Span(click.FloatRange):
    """A number from ``least`` to ``most``; click lets ``nan`` through, which no clock takes."""

    def __init__(self, least: float, most: float):
        super().__init__(least, most)

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> float:
        """Click's seam."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found) or not str(value).isascii():
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found
