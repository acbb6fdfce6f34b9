"""Whether an engine of the registry still has the port that its record names.

What is sent to a port goes to whoever listens there. When an engine has ended, that may be
anybody on the machine, so keys and tokens follow the process and not the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdeck.engine.client.secret import Secret
from specdeck.engine.client.token import read_token
from specdeck.engine.errors import Unauthorized, Unreachable
from specdeck.engine.launch import ports, process
from specdeck.engine.launch.registry import Record, Registry

Ownership = Literal["owned", "silent", "taken", "gone", "elsewhere", "unknown"]
"""`silent`: it runs, and nobody listens; `taken`: somebody else does.

`gone`: its process has ended. `unknown`: the kernel does not tell who listens.
"""


@dataclass(frozen=True, slots=True)
class _Hold:
    """The engine's listening sockets, as last seen: a look at these is cheap."""

    leader: process.Leader
    sockets: tuple[ports.HeldSocket, ...]

    def lasts(self) -> bool:
        return process.leads(self.leader) and all(socket.is_held() for socket in self.sockets)


class PortOwner:
    """The engine of a record, or the one started in its place; looked at anew each time."""

    def __init__(self, record: Record, registry: Registry | None = None) -> None:
        """With a `registry`, an engine that has ended is succeeded by one at the same URL."""
        self.record = record
        self._registry = registry
        self._hold: _Hold | None = None

    def look(self) -> Ownership:
        """How things stand at this moment."""
        if self._hold is not None and self._hold.lasts():
            return "owned"
        self._hold = None
        found = self._look()
        if found == "gone" and (heir := self._find_heir()) is not None:
            self.record = heir
            found = self._look()
        return found

    def check(self, *, is_asked_for: bool = True) -> None:
        """Raises EngineError unless the engine has its port, so that a request may go there.

        Where the kernel does not tell, a request that `is_asked_for` passes: its secrets were
        named by the operator. One with secrets that specdeck found raises Unauthorized.
        """
        name, url, port = self.record.name, self.record.url, self.record.port
        match self.look():
            case "silent":
                raise Unreachable(
                    f"{url} refuses connections", remedy="is the engine running there?"
                )
            case "taken":
                raise Unreachable(
                    f"another process than {name} listens on port {port}, and is sent nothing",
                    remedy=f"see who it is, or `specdeck stop {name}`",
                )
            case "gone":
                raise Unreachable(
                    f"{name} has ended, and who answers at {url} is sent nothing",
                    remedy="see `specdeck ps`",
                )
            case "elsewhere":
                raise self.record.elsewhere_error()
            case "unknown" if not is_asked_for:
                raise self._unknown("API key", "name its variable with --api-key-env")

    def token(self) -> Secret | None:
        """The admin token that the record names; None where its file holds none.

        `check` decides whether it may be sent. Raises Unauthorized where the kernel does not
        tell who listens.
        """
        if self.look() == "unknown":
            raise self._unknown("admin token", "give --admin-token-file or SPECDECK_ADMIN_TOKEN")
        return read_token(self.record.token_path)

    def _unknown(self, what: str, remedy: str) -> Unauthorized:
        return Unauthorized(
            f"cannot verify that {self.record.name} listens on port {self.record.port}, "
            f"so its {what} is not used unasked",
            remedy=remedy,
        )

    def _look(self) -> Ownership:
        record = self.record
        if not record.is_here():
            return "elsewhere"
        if not process.leads(record.leader):
            return "gone"
        if record.port is None:
            return "unknown"
        wanted = ports.find_listeners(record.port, record.address)
        if wanted is None:
            return "unknown"
        if not wanted:
            return "silent"
        held = ports.find_held(record.leader, wanted)
        if held is None:
            return "unknown"
        if {socket.inode for socket in held} != wanted:
            return "taken"
        if ports.is_numeric(record.address):  # a name may lead to another listener at any time
            self._hold = _Hold(record.leader, held)
        return "owned"

    def _find_heir(self) -> Record | None:
        if self._registry is None:
            return None
        heir = self._registry.find(self.record.url)
        if heir is None or heir.url != self.record.url or heir.leader == self.record.leader:
            return None
        return heir if heir.life() == "running" else None
