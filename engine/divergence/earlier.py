"""Checks side by side, so that one draft's or k's can be set beside another's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.store.checks import Run

HEAD = ("UTC", "METHOD", "DRAFT", "K", "REFERENCE", "PROMPTS", "DIFFER", "95%", "FLOOR", "TIES",
        "MATERIAL", "STRUCT.", "TOK/S", "REF. TOK/S", "VERDICT", "PATH")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One finished check; None is not known."""

    t: float
    """Unix time of its end, seconds."""
    method: str | None
    draft: str | None
    """Eight digits that name the draft's content."""
    k: int | None
    mode: str | None
    grade: str
    prompt_set: str | None
    """A digest: rates of different prompts are no comparison."""
    max_tokens: int | None
    prompts: int
    mismatches: int
    mismatch_rate: float | None
    ci95: tuple[float, float] | None
    floor_rate: float | None
    classes: Mapping[str, int]
    serving_tokens_per_second: float | None
    """Of one stream, on average."""
    reference_tokens_per_second: float | None
    verdict: str
    fingerprint: str | None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "ci95": None if self.ci95 is None else list(self.ci95)}


def lines(runs: Sequence[Run]) -> tuple[Line, ...]:
    """What the store has of finished runs, in the order given."""
    return tuple(_line(run, run.summary) for run in runs if run.summary is not None)


def like(runs: Sequence[Run]) -> tuple[Line, ...]:
    """The runs before the first of `runs` with its prompts and settings, whatever draft or k."""
    if not runs:
        return ()
    now, *earlier = runs
    same = [run for run in earlier if all(run.facts.get(n) == now.facts.get(n) for n in _ASKED)]
    return lines(same)


def cells(line: Line) -> tuple[str, ...]:
    """A line for reading, as HEAD names it."""
    from datetime import UTC, datetime

    low, high = (None, None) if line.ci95 is None else line.ci95
    k = "target-only" if line.mode == "target-only" else _text(line.k)
    return (
        f"{datetime.fromtimestamp(line.t, UTC):%Y-%m-%d %H:%M}",
        line.method or "–",
        line.draft or "–",
        k,
        line.grade,
        str(line.prompts),
        _percent(line.mismatch_rate),
        f"{_percent(low)} to {_percent(high)}",
        _percent(line.floor_rate),
        *(str(line.classes[name]) for name in ("near_tie", "material", "structural")),
        _speed(line.serving_tokens_per_second),
        _speed(line.reference_tokens_per_second),
        line.verdict,
        line.fingerprint or "–",
    )


_ASKED = ("prompts", "settings")
_DRAFT = "model.draft."
"""Facts of its content; they hold no path, so the digest follows a draft wherever it lies."""


def _line(run: Run, summary: Mapping[str, Any]) -> Line:
    facts = run.facts.get("serving", {}).get("facts", {})
    arms, ci = summary["arms"], summary["ci95"]
    return Line(
        t=run.finished or run.t,
        method=facts.get("method"),
        draft=_draft(facts.get("details") or {}),
        k=arms["serving"]["k"],
        mode=facts.get("mode"),
        grade=arms["reference"]["grade"],
        prompt_set=run.facts.get("prompts"),
        max_tokens=(run.facts.get("settings") or {}).get("max_tokens"),
        prompts=summary["prompts"],
        mismatches=summary["mismatches"],
        mismatch_rate=summary["mismatch_rate"],
        ci95=None if ci is None else (ci[0], ci[1]),
        floor_rate=summary["noise_floor"]["rate"],
        classes=summary["classes"],
        serving_tokens_per_second=arms["serving"]["tokens_per_second"],
        reference_tokens_per_second=arms["reference"]["tokens_per_second"],
        verdict=summary["verdict"],
        fingerprint=arms["serving"]["fingerprint"],
    )


def _draft(details: Mapping[str, Any]) -> str | None:
    known = {name: value for name, value in details.items() if name.startswith(_DRAFT)}
    return hashlib.sha256(canonical(known)).hexdigest()[:8] if known else None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _speed(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _text(value: object) -> str:
    return "–" if value is None else str(value)
