"""What a part of ours may stumble over that nobody expected, as values to catch by name.

Contract.  ``DEFECTS`` is caught where a stumble must be told as a result, and not end what told it:
the verdict of a seed, a nemesis in a thread of its own.  What ends a process on purpose
(``KeyboardInterrupt``, ``SystemExit``) and a lack of memory are none.
"""

from __future__ import annotations

from multiraft.errors import MultiRaftError

DEFECTS = (AssertionError, MultiRaftError, OSError, ArithmeticError, LookupError, TypeError,
           ValueError, AttributeError)
