"""Errors of the data source: one sentence about the cause, one about the remedy.

Contract.  Every error that a user can cause or correct is a ``SourceError``; its text is clear
without a traceback.  ``explained`` turns the client's errors into one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from multiraft.client import NoNodeAnswered, UnreadableBatch
from multiraft.client.ranges import DataLost
from multiraft.errors import ConfigError, MultiRaftError
from multiraft.wire.errors import AmbiguousOutcome, RequestError


class SourceError(Exception):
    """Raised when a query cannot run as it is."""


class OptionError(SourceError):
    """Raised for an unknown option, or for a value that the option does not accept."""


class LossError(SourceError):
    """Raised when records that the query was to read no longer exist."""


@contextlib.contextmanager
def explained(servers: Sequence[str]) -> Iterator[None]:
    """Turn the client's errors in the body into ``SourceError``, without their traceback, which
    would hide the sentence."""
    try:
        yield
    except SourceError as error:
        raise error.with_traceback(None) from None
    except NoNodeAnswered as error:
        raise SourceError(
            f"no node of the cluster answers at {', '.join(servers)} ({error}). Check the option "
            f"'servers' (host:port of client ports), and that the nodes run: "
            f"multiraft cluster status --servers {','.join(servers)}") from None
    except DataLost as error:
        raise lost(str(error)) from None
    except ConfigError as error:
        raise OptionError(f"{error}. Correct the option.") from None
    except RequestError as error:
        raise SourceError(f"the cluster refused: {error}. Nothing was changed by that; run the "
                          "query again when the cause is gone.") from None
    except AmbiguousOutcome as error:
        raise SourceError(f"the outcome is unknown: {error}. Start the query again: with "
                          "mode=transactional or mode=idempotent nothing is doubled by that, with "
                          "mode=at-least-once rows may be.") from None
    except UnreadableBatch as error:
        raise SourceError(
            f"{error}. Read from offset {error.next_offset} of that partition on "
            "(startingOffsets), or set skipUnreadable=true to leave such batches out.") from None
    except MultiRaftError as error:
        raise SourceError(f"reading failed: {error}") from None


def lost(what: str) -> LossError:
    """Return the error for lost records where failOnDataLoss is set."""
    return LossError(
        f"{what}. Read from where the records begin (startingOffsets), or set "
        "failOnDataLoss=false to continue without the lost records.")
