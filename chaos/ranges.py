"""Parameter types of the command line: numbers within a range, in ASCII digits.

Theory.  Click's own numbers accept what Python accepts: ``nan``, ``1_000``, digits of other
scripts.
"""

from __future__ import annotations

import re

import click

_WHOLE = re.compile(r"[+-]?[0-9]{1,25}")
_REAL = re.compile(r"[+-]?[0-9]{1,25}(?:\.[0-9]{0,25})?(?:[eE][+-]?[0-9]{1,4})?")


class Whole(click.IntRange):
    """A whole number from ``least`` to ``most``."""

    def __init__(self, least: int, most: int):
        super().__init__(least, most)

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> int:
        """Return an argument as a number; overrides click's method. Fails with a usage error for
        anything but ASCII digits with a sign, and outside the range."""
        if isinstance(value, str) and not _WHOLE.fullmatch(value):
            self.fail(f"{value[:40]!r} is not a whole number.", param, ctx)
        return super().convert(value, param, ctx)


class Real(click.FloatRange):
    """A number from ``least`` to ``most``, with a fraction if given."""

    def __init__(self, least: float, most: float):
        super().__init__(least, most)

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> float:
        """Return an argument as a number; overrides click's method. Fails with a usage error for
        anything but a decimal number in ASCII, and outside the range."""
        if isinstance(value, str) and not _REAL.fullmatch(value):
            self.fail(f"{value[:40]!r} is not a number.", param, ctx)
        return super().convert(value, param, ctx)
