"""Oracle of group 0: the state that the committed commands up to each index lead to.

Theory.  The state is a hash of all commands in order: a command that is lost, doubled, reordered or
taken from another log changes the hash permanently.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from chaos.simulator.env.violations import Violation
from chaos.simulator.oracle import metadata_oracle
from chaos.simulator.oracle.model import GroupModel
from multiraft.types import EntryKind


class CommandState(NamedTuple):
    """Result of the commands up to ``version``."""

    version: int = 0  # index of the last command
    chain: bytes = b""

    def after(self, index: int, command: bytes) -> CommandState:
        """Return the state that the command at ``index`` leads to from this one."""
        hasher = hashlib.blake2b(self.chain + index.to_bytes(8, "little"), digest_size=16)
        hasher.update(command)
        return CommandState(index, hasher.digest())


class CommandOracle:
    """Expected state at each index."""

    def __init__(self, group: GroupModel):
        self._group = group
        self._seen = 0
        self._state = CommandState()
        self._chains = {0: b""}
        self.metadata = metadata_oracle.MetadataOracle()

    def check(self, node: int, state: CommandState, index: int) -> None:
        """Compare a node's state at ``index`` with that of all committed commands up to it.  Raises
        ``Violation``."""
        for place in range(self._seen, self._group.commit):
            entry = self._group.entries[self._group.committed[place]]
            if entry.kind == EntryKind.METADATA:
                command = bytes(entry.payload)
                self._state = self._state.after(entry.index, command)
                if metadata_oracle.is_command(command):
                    self.metadata.apply(entry.index, command)
            self._chains[place + 1] = self._state.chain
        self._seen = self._group.commit
        if self._chains.get(index) != state.chain:
            raise Violation("StateIsWhatWasCommanded", f"n{node} is at index {index} (command "
                            f"{state.version}) in another state than the commands up to there give")
