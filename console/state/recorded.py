"""Recordings in the place of engines: their whole time can be sought."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from specdeck.console.state.past import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import ReplayedEngine, refusal

if TYPE_CHECKING:
    from specdeck.engine.blackbox.json_history import JsonHistory
    from specdeck.engine.fingerprint.fingerprint import Fingerprint


class PlayedRecording(ReplayedEngine):
    """A recording of JSON lines: plays from its beginning until somebody goes to another moment."""

    plays = True
    is_incident = False
    fingerprint = None
    _history: JsonHistory | None = None

    def find_history(self) -> JsonHistory:
        """All that it holds; read when it is first asked for. Raises ConfigError."""
        if self._history is None:
            from specdeck.engine.blackbox.json_history import JsonHistory

            self.take_history(JsonHistory(self.recording, self.url))
        assert self._history is not None
        return self._history

    def take_history(self, history: JsonHistory) -> None:
        """Has its past at hand, read by somebody else; asked from this thread within bounds."""
        from specdeck.engine.blackbox.patience import Patience

        history.limit_waiting(Patience())
        self._history = history


class RecordedBox:
    """A black box, looked at without its engine, at one moment until somebody goes elsewhere."""

    armed = False
    local = False
    plays = False

    def __init__(
        self,
        history: History,
        *,
        name: str,
        url: str,
        speed: float = 1.0,
        is_incident: bool = False,
        fingerprint: Fingerprint | None = None,
    ) -> None:
        """`fingerprint` is what an incident file has of it besides its record."""
        self.name = name
        self.fingerprint = fingerprint
        self.is_incident = is_incident
        self.url = url
        self.speed = speed
        self._history = history

    def find_history(self) -> History:
        """All that it holds."""
        return self._history

    def arm(self) -> None:
        """Raises EngineError: there is nothing to change."""
        raise refusal()

    async def readings(self, every: float) -> AsyncIterator[Reading]:
        """None: what is shown is looked up."""
        return
        yield

    async def close(self) -> None:
        """Nothing is held."""
