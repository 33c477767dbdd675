"""Names of the settings that this release carries out.

Contract.  ``registry.py`` marks a setting as one that has an effect once it is implemented.  Such a
setting is accepted and stored in any case.  Descriptions call it *in effect* only if its name is in
``CARRIED_OUT``, so the change that implements a setting adds its name here.
"""

from __future__ import annotations

CARRIED_OUT = frozenset((
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.type",
    "retention.bytes",
    "retention.ms",
    "retention.records",
))
