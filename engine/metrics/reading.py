"""One look at an engine: its page, its plugin's word, and what changed since the last look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from specdeck.engine.errors import EngineError
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import EngineState


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as NVML sees it; None is what the driver does not tell."""

    index: int
    name: str
    utilisation: float | None
    """Share of the last period in which a kernel ran, 0 to 1."""
    memory_used: int | None
    """Bytes."""
    memory_total: int | None
    """Bytes."""
    power_w: float | None


Presence = Literal["up", "no figures", "down"]
"""How an engine is there: with no figures it can be steered, and its counters are unknown."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What could be learnt of one engine at one moment.

    An engine that is down is a reading with an `error`, not an exception.
    """

    t: float
    """Unix time, seconds."""
    url: str
    sample: Sample | None = None
    window: Window | None = None
    """Work since the reading before; None on the first, after an error and across a restart."""
    state: EngineState | None = None
    error: EngineError | None = None
    """Why there is no sample."""
    unmeasured: EngineState | None = None
    """The plugin's word where there is no sample: the engine can be steered, and what its counters
    show is unknown."""
    control_error: EngineError | None = None
    """Why there is no state: no plugin, no key, …; None when there is one."""
    restarted: bool = False
    """Whether the engine was restarted since the last reading that had a sample."""
    gpus: tuple[Gpu, ...] | None = None
    """None when NVML does not answer or the engine is not on this machine."""

    @property
    def up(self) -> bool:
        """Whether the engine answered."""
        return self.sample is not None

    @property
    def presence(self) -> Presence:
        """Whether the engine answered, and with figures."""
        if self.up:
            return "up"
        return "no figures" if self.unmeasured is not None else "down"

    @property
    def word(self) -> EngineState | None:
        """What the plugin says, with or without figures."""
        return self.state or self.unmeasured

    def with_word(self, word: EngineState) -> Reading:
        """The same look with another word of the plugin, which has answered."""
        if self.unmeasured is not None:
            return replace(self, unmeasured=word)
        return replace(self, state=word)

    def as_down(self, ended: EngineError) -> Reading:
        """The same look at an engine that has ended: what still answers at its URL is another."""
        return Reading(self.t, self.url, error=ended, control_error=ended)
