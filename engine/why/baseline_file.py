"""A baseline in a file: an engine's cohorts and step times when it was well.

Counts, digests and times; no prompt, no name of a request, no key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specdeck.engine.errors import ConfigError, Place, UsageError
from specdeck.engine.files import read_file, replace_file
from specdeck.engine.protocol.codec import NotJson, UnixTime, WrongType, loads, read_record
from specdeck.engine.protocol.cohorts import CohortCell
from specdeck.engine.why.cpu_wait import CpuWait
from specdeck.engine.why.evidence import Baseline, CohortSpan, DraftFacts, Evidence
from specdeck.engine.why.figures import Spread
from specdeck.engine.why.step_profile import StepProfile, StepTime, profile_steps

FORMAT = 1
_MOST_BYTES = 4_000_000
_MOST_K = 256
_MOST_WAITS = 64


@dataclass(frozen=True, slots=True)
class _Time:
    requests: int
    k: int
    prefill: int
    steps: int
    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class _Document:
    format: int
    url: str
    start: UnixTime
    end: UnixTime
    k_max: int
    cells: tuple[CohortCell, ...]
    tokens_per_trial: float | None
    spread_requests: int
    times: tuple[_Time, ...]
    prefill: float | None
    facts: DraftFacts
    waits: tuple[CpuWait, ...] = ()
    """Nothing in a file that was written before threads were watched."""


def save_baseline(path: Path, evidence: Evidence) -> None:
    """Writes what was seen, for its owner alone; raises UsageError where it cannot be written."""
    profile = profile_steps(evidence.steps)
    document = _Document(
        FORMAT, evidence.url, evidence.span.start, evidence.span.end, evidence.span.k_max,
        tuple(CohortCell(cohort, counts) for cohort, counts in evidence.span.cells.items()),
        evidence.spread.tokens, evidence.spread.requests,
        tuple(
            _Time(requests, k, prefill, time.steps, time.low, time.middle, time.high)
            for (requests, k, prefill), time in profile.times.items()
        ),
        profile.prefill, evidence.facts, evidence.waits[:_MOST_WAITS],
    )  # fmt: skip
    try:
        replace_file(path, json.dumps(asdict(document)) + "\n", mode=0o600)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"{path}: {reason}", remedy="give another file to --save") from None


def load_baseline(path: Path) -> Baseline:
    """What `save_baseline` wrote; raises ConfigError for a file that is none, or a newer one."""
    place = Place(path)
    try:
        data = loads(read_file(path, most=_MOST_BYTES))
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(reason, place=place, remedy="write one with --save") from None
    except NotJson as error:
        raise ConfigError(f"no baseline of `specdeck why`: {error}", place=place) from None
    form = data.get("format") if isinstance(data, Mapping) else None
    if isinstance(form, int) and form > FORMAT:
        message = f"a baseline of form {form}, and this specdeck reads {FORMAT}"
        raise ConfigError(message, place=place, remedy="update specdeck here")
    return _read(data, place)


def _read(data: Any, place: Place) -> Baseline:
    try:
        found = read_record(_Document, data)
        if not 0 <= found.k_max <= _MOST_K:
            raise WrongType("k_max is no draft length")
        for cell in found.cells:
            counts = cell.counts
            by_position = (*counts.drafted_per_position, *counts.accepted_per_position)
            if (
                len(by_position) != 2 * found.k_max
                or min((counts.requests, counts.drafts, *by_position)) < 0
            ):
                raise WrongType("the counts of a cell do not go together")
        if found.tokens_per_trial is not None and found.tokens_per_trial < 1:
            raise WrongType("tokens_per_trial is below 1")
        if not all(one.steps > 0 and one.middle > 0 for one in found.times):
            raise WrongType("a step took no time")
        if len(found.waits) > _MOST_WAITS or not all(map(_is_wait, found.waits)):
            raise WrongType("a wait that is no share of its time")
    except WrongType as error:
        message = f"no baseline of `specdeck why`: {error}"
        raise ConfigError(message, place=place, remedy="write one with --save") from None
    cells = {cell.cohort: cell.counts for cell in found.cells}
    times = {
        (one.requests, one.k, one.prefill): StepTime(one.steps, one.low, one.middle, one.high)
        for one in found.times
    }
    return Baseline(
        "file",
        CohortSpan(found.start, found.end, found.k_max, cells),
        Spread(found.tokens_per_trial, found.spread_requests),
        StepProfile(times, found.prefill),
        found.facts,
        found.url,
        found.waits,
    )


def _is_wait(one: CpuWait) -> bool:
    shares = (one.waiting, one.most, one.throttled or 0.0)
    return one.start < one.end and all(0 <= share <= 1 for share in shares)
