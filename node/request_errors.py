"""The table from errors of request handlers to codes and details of the wire.

Contract. A handler of a client's or a node's request raises one of ``REFUSED``; any other exception
is a defect. The table extends that of ``clients/error_codes.py``, which covers the errors of the
library.
"""

from __future__ import annotations

from collections.abc import Callable

from multiraft.errors import MultiRaftError
from multiraft.wire.errors import AmbiguousOutcome, Code, ErrorDetail, RequestError
from node.clients.error_codes import REFUSALS, refusal
from node.metadata import state_machine

#: Errors that handlers raise for requests that cannot be granted.
REFUSED = (RequestError, AmbiguousOutcome, state_machine.InvalidCommand, *REFUSALS)


def request_error(error: MultiRaftError, leader_detail: Callable[[int], tuple[Code, ErrorDetail]]
                  ) -> tuple[Code, ErrorDetail]:
    """Return code and detail of ``error``, which is one of ``REFUSED``.  ``leader_detail(group)``
    returns them for a group that another node leads."""
    if isinstance(error, (RequestError, AmbiguousOutcome)):
        return error.code, error.detail
    if isinstance(error, state_machine.InvalidCommand):
        return Code.INVALID_REQUEST, ErrorDetail(text=str(error))
    return refusal(error, leader_detail)
