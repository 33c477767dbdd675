"""What is said to somebody whose query cannot run: one sentence what is wrong, one what to do.

Contract.  Everything that a user can cause or mend is a ``SourceError``; its text needs no trace
to be understood.  ``explained`` turns what the client raises into one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from multiraft.client import NoNodeAnswered, UnreadableBatch
from multiraft.client.ranges import DataLost
from multiraft.errors import ConfigError, MultiRaftError
from multiraft.wire.errors import AmbiguousOutcome, RequestError


class SourceError(Exception):
    """The query cannot run as it stands."""


class OptionError(SourceError):
    """An option that does not exist, or a value that it does not take."""


class LossError(SourceError):
    """Records that the query was to read do not exist any more."""


@contextlib.contextmanager
def explained(servers: Sequence[str]) -> Iterator[None]:
    """Raise what the client raises as a ``SourceError``; without its own trace, which would stand
    in front of the sentence."""
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
        raise SourceError(f"nobody knows what became of it: {error}. Start the query again: with "
                          "mode=transactional or mode=idempotent nothing is doubled by that, with "
                          "mode=at-least-once rows may be.") from None
    except UnreadableBatch as error:
        raise SourceError(
            f"{error}. Read from offset {error.next_offset} of that partition on "
            "(startingOffsets), or set skipUnreadable=true to leave such batches out.") from None
    except MultiRaftError as error:
        raise SourceError(f"reading failed: {error}") from None


def lost(what: str) -> LossError:
    """Records are gone, and failOnDataLoss says that this matters."""
    return LossError(
        f"{what}. Read from where the records begin (startingOffsets), or set "
        "failOnDataLoss=false to go on without what is lost.")
