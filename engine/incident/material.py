"""All that an incident file is made of, as plain values; what could not be had has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.falls import Fall
from specdeck.engine.blackbox.summary import OverviewColumn
from specdeck.engine.incident.case import Case
from specdeck.engine.incident.engine_log import LogTail
from specdeck.engine.incident.figures import Stretch
from specdeck.engine.incident.kinds import Kinds
from specdeck.engine.incident.moves import Move
from specdeck.engine.incident.onset import Onset
from specdeck.engine.why.ranking import Diagnosis


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, Unix seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start


@dataclass(slots=True)
class Material:
    """What is known of an engine around an incident; texts are clean of credentials and prompts."""

    url: str
    name: str
    span: Span
    written: float
    """Unix time at which it was collected, seconds."""
    up: bool | None = None
    """Whether the engine answered at the end; None where it was not asked."""
    versions: dict[str, str | None] = field(default_factory=dict)
    columns: tuple[OverviewColumn, ...] = ()
    downs: tuple[tuple[float, float], ...] = ()
    """When the engine did not answer."""
    is_down_at_end: bool = False
    """Whether the last reading had no answer."""
    restarts: tuple[float, ...] = ()
    readings: int = 0
    falls: tuple[Fall, ...] = ()
    """The one that tells when first, the others by time."""
    onset: Onset | None = None
    """How sudden the first one was."""
    further: tuple[tuple[Fall, Stretch, Stretch], ...] = ()
    """Falls of the speed beside which acceptance did not fall, and the figures before and after."""
    pivot: float | None = None
    """The moment around which before and after are told, Unix seconds."""
    stretches: tuple[Stretch, ...] = ()
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was set `before`, `after` and `now`."""
    moves: tuple[Move, ...] = ()
    events: tuple[BoxEvent, ...] = ()
    kinds: Kinds | None = None
    diagnosis: Diagnosis | None = None
    case: Case | None = None
    """What speaks for the first cause, where that is about a kind of request."""
    state: Mapping[str, Any] | None = None
    """The engine's last word of itself."""
    told: float | None = None
    """When that was, Unix seconds; None where it was told when this was written."""
    model: str | None = None
    """What its counters call the model."""
    tuning: Mapping[str, Any] | None = None
    fingerprint: Mapping[str, Any] | None = None
    """The keys of `Fingerprint.as_json`, without the facts."""
    facts: Mapping[str, Any] | None = None
    fingerprints: tuple[Mapping[str, Any], ...] = ()
    """Names that were seen in the span, with what led to it."""
    checks: tuple[Mapping[str, Any], ...] = ()
    config: Any = None
    log: LogTail | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """Why something is not in the file, by its name."""
    notes: list[str] = field(default_factory=list)

    def list_missing(self) -> list[tuple[str, str]]:
        """What could not be had, together where the reason is one, and the reason."""
        by_reason: dict[str, list[str]] = {}
        for name, why in sorted(self.missing.items()):
            by_reason.setdefault(why, []).append(name)
        return [(", ".join(names), why) for why, names in by_reason.items()]

    @property
    def fall(self) -> Fall | None:
        """The fall that tells when."""
        return self.falls[0] if self.falls else None
