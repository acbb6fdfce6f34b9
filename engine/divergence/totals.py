"""The sums of a run: of constant size, kept with every prompt so that a run can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from specdeck.engine.divergence.answer import Answer
from specdeck.engine.divergence.compare import Divergence
from specdeck.engine.divergence.resolution import Calibration, agreed
from specdeck.engine.divergence.statistics import Rate
from specdeck.engine.fingerprint.name import is_partial, own_part
from specdeck.engine.store.checks import Pair

_MOST_NAMES = 20
"""Of one arm: under a policy every k has its own."""
_DUE = 4
"""Tokens: a longer answer gives a drafter more than one occasion."""


@dataclass(slots=True)
class ArmTotals:
    """What one arm answered."""

    requests: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Of its requests, added up: more than the clock shows when several run at once."""
    drafted: int | None = None
    """None where the engine does not say."""
    names: list[str] = field(default_factory=list)
    """The fingerprints that its answers carried, in the order in which they were met."""
    pinned: str | None = None
    """The fingerprint of answers to pinned requests, with their k; None where none carried it."""
    due: int = 0
    """Answers long enough for drafts, of which the engine says how many there were."""
    undrafted: int = 0
    """Those of them for which nothing was drafted."""

    def see(self, answer: Answer) -> None:
        """Takes in one answer."""
        self.requests += 1
        self.tokens += len(answer.token_ids)
        self.seconds += answer.seconds
        if answer.drafted is not None:
            self.drafted = (self.drafted or 0) + answer.drafted
            if len(answer.token_ids) > _DUE:
                self.due += 1
                self.undrafted += answer.drafted == 0
        if (whole := answer.system_fingerprint) and len(self.names) < _MOST_NAMES:
            name = own_part(whole)
            mark, pin = whole.partition("+k")[1:]
            if pin and self.pinned is None and not is_partial(name):
                self.pinned = f"{name}{mark}{pin}"
            if name not in self.names:
                self.names.append(name)

    @property
    def paths(self) -> list[str]:
        """The names met that stand for all facts: while some are gathered, a name is no path yet.

        >>> ArmTotals(names=["sd1:p~0123456789abcdef", "sd1:p0123456789abcdef"]).paths
        ['sd1:p0123456789abcdef']
        """
        return [name for name in self.names if not is_partial(name)]

    @property
    def idle(self) -> Rate:
        """Answers without any draft, of those that were long enough for some."""
        return Rate(self.undrafted, self.due)

    @property
    def tokens_per_second(self) -> float | None:
        """Of one request, on average; None before there was any."""
        return self.tokens / self.seconds if self.seconds else None


@dataclass(slots=True)
class Totals:
    """Counts of pairs and of those that differ."""

    prompts: int = 0
    """Answered by both arms."""
    refused: int = 0
    mismatches: int = 0
    with_tools: int = 0
    tool_mismatches: int = 0
    """Prompts with tools whose calls differ in name or arguments."""
    structural: int = 0
    reference_pairs: int = 0
    reference_mismatches: int = 0
    serving_pairs: int = 0
    serving_mismatches: int = 0
    stream_only: int = 0
    """Answers that the serving arm alone streams otherwise than it tells them whole."""
    streamed_in_both: int = 0
    """Prompts whose answers each arm streams otherwise than it tells them whole."""
    streamed_by_reference: int = 0
    """Those of the reference alone."""
    seconds: float = 0.0
    """By the clock, over all attempts."""
    serving: ArmTotals = field(default_factory=ArmTotals)
    reference: ArmTotals = field(default_factory=ArmTotals)
    calibration: Calibration = field(default_factory=Calibration)

    def take(self, parted: Mapping[Pair, Divergence | None], *, has_tools: bool) -> None:
        """Counts the three pairs of one prompt."""
        cross, again, twice = parted["cross"], parted["reference"], parted["serving"]
        self.prompts += 1
        self.mismatches += cross is not None
        self.structural += bool(cross and cross.structure)
        self.with_tools += has_tools
        self.tool_mismatches += bool(has_tools and cross and cross.structure)
        self.reference_pairs += 1
        self.reference_mismatches += again is not None and not again.stream_only
        self.serving_pairs += 1
        self.serving_mismatches += twice is not None and not twice.stream_only
        self.stream_only += bool(twice and twice.streamed_alone)
        self.streamed_by_reference += bool(again and again.streamed_alone)
        self.streamed_in_both += any(one and one.in_both for one in (again, twice))

    def measure(self, serving: tuple[Answer, Answer], reference: tuple[Answer, Answer]) -> None:
        """Takes in what both arms answered to one prompt, and how far their margins lie apart."""
        for name, answers, sums in (
            ("serving", serving, self.serving),
            ("reference", reference, self.reference),
        ):
            self.calibration.see(name, answers[0])
            for answer in answers:
                sums.see(answer)
        (s1, s2), (r1, r2) = serving, reference
        for one, other in ((s1, r1), (s1, s2), (r1, r2)):
            self.calibration.compare(one, other, agreed(one.token_ids, other.token_ids))

    @property
    def cross(self) -> Rate:
        """Serving against reference."""
        return Rate(self.mismatches, self.prompts)

    @property
    def floor(self) -> Rate:
        """The reference against itself."""
        return Rate(self.reference_mismatches, self.reference_pairs)

    @property
    def serving_floor(self) -> Rate:
        """The serving arm against itself."""
        return Rate(self.serving_mismatches, self.serving_pairs)

    @property
    def tools(self) -> Rate:
        """Prompts with tools whose calls differ."""
        return Rate(self.tool_mismatches, self.with_tools)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store: written after every prompt, so without `asdict`'s copies."""
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "serving": asdict(self.serving),
            "reference": asdict(self.reference),
            "calibration": self.calibration.as_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Totals:
        """What `as_json` gave, or the beginning of nothing."""
        if not data:
            return cls()
        return cls(
            **{
                **data,
                "serving": ArmTotals(**data["serving"]),
                "reference": ArmTotals(**data["reference"]),
                "calibration": Calibration.from_json(data["calibration"]),
            }
        )


_COUNTS = tuple(
    one.name for one in fields(Totals) if one.name not in ("serving", "reference", "calibration")
)
