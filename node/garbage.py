"""The garbage collector, kept from what a node has for as long as it runs.

Contract.  ``settle`` is called when a node has been built: what was made so far lives as long as
the process, so the collector need not visit it again, and a recovered index of any size cannot
stall the loop (DESIGN section 4).
"""

from __future__ import annotations

import gc

#: Objects between searches for cycles: a round makes a few hundred, and hardly any is cyclic.
THRESHOLD = 20_000


def settle() -> None:
    """See the module's docstring."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD, 20, 50)
