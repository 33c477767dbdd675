"""Choice of the hot path's implementation by ``MULTIRAFT_CORE``: ``compiled`` (default) or
``reference``.  A missing extension is an error and never replaced silently."""

from __future__ import annotations

import os

_CHOICE = os.environ.get("MULTIRAFT_CORE", "compiled")

if _CHOICE == "compiled":
    try:
        from multiraft._core import *  # noqa: F403
    except ImportError as error:
        raise ImportError("the compiled hot path multiraft._core is missing or stale: run "
                          "`make build` (or set MULTIRAFT_CORE=reference for the slow twin)"
                          ) from error
elif _CHOICE == "reference":
    from multiraft.codec.reference import *  # noqa: F403
else:
    raise ImportError(f"MULTIRAFT_CORE={_CHOICE!r}: expected 'compiled' or 'reference'")
