"""All that an incident file is made of, as plain values; what could not be had has a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.falls import Fall, Figure
from specdeck.engine.blackbox.gaps import Coverage
from specdeck.engine.blackbox.summary import OverviewColumn
from specdeck.engine.incident.case import Case
from specdeck.engine.incident.dips import Dip
from specdeck.engine.incident.engine_log import LogTail
from specdeck.engine.incident.figures import Stretch
from specdeck.engine.incident.kinds import Kinds
from specdeck.engine.incident.moves import Move
from specdeck.engine.incident.onset import Onset
from specdeck.engine.incident.slides import Slide
from specdeck.engine.incident.stalls import Stall
from specdeck.engine.why.causes import Cause
from specdeck.engine.why.ranking import Diagnosis

LATER_S: Final = 180.0
"""After a fall: what is seen to begin later than that did not make it."""


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
    load_ends: tuple[Fall, ...] = ()
    """When speed was lost because nothing was asked for any more, by time: none of `falls`."""
    slides: tuple[Slide, ...] = ()
    """Figures that are lower at the span's end than at its beginning, where `falls` do not tell it;
    one a figure."""
    settled: float | None = None
    """Unix time from which on a fall is not seen yet; None where that is after the span."""
    dips: tuple[Dip, ...] = ()
    """Falls of acceptance that went by, by time; none that `falls` has."""
    stalls: tuple[Stall, ...] = ()
    """When requests ran and no token came, by time."""
    coverage: Mapping[Figure, Coverage] = field(default_factory=dict)
    """How much of the span is known of each figure; of one that is missing nothing."""
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

    def is_later(self, cause: Cause) -> bool:
        """Whether a cause began so long after the fall that it is not what made it."""
        fall = self.fall
        return fall is not None and cause.since is not None and cause.since - fall.t > LATER_S

    @property
    def has_worsened(self) -> bool:
        """Whether anything fell, slid, went by or stood still: what may have a cause."""
        return bool(self.falls or self.slides or self.dips or self.stalls)

    @property
    def has_gone(self) -> bool:
        """Whether the engine ended: it did not answer in the end, or another start of it did."""
        return self.is_down_at_end or bool(self.restarts)

    @property
    def likeliest(self) -> Cause | None:
        """The cause that explains most, of those that may have made the fall."""
        causes = () if self.diagnosis is None else self.diagnosis.causes
        return next((one for one in causes if not self.is_later(one)), None)

    @property
    def fall(self) -> Fall | None:
        """The fall that tells when."""
        return self.falls[0] if self.falls else None

    @property
    def turn(self) -> float | None:
        """Unix time up to which all was as before the fall that tells when; None without one."""
        return None if self.fall is None else self.fall.earliest
