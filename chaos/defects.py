"""Exception types of unexpected defects in our own code, for handlers that report them.

Contract.  Catch ``DEFECTS`` where a defect must be reported as a result instead of ending the
reporter: the verdict of a seed, a nemesis in a thread of its own.  Exceptions that end a process on
purpose (``KeyboardInterrupt``, ``SystemExit``) and a lack of memory are not among them.
"""

from __future__ import annotations

from multiraft.errors import MultiRaftError

DEFECTS = (AssertionError, MultiRaftError, OSError, ArithmeticError, LookupError, TypeError,
           ValueError, AttributeError, RuntimeError)
