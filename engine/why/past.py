"""Evidence out of a black box: any stretch of the past, and an hour ago as a baseline.

Cohorts are recorded once a minute and readings every second. Single steps are not: what a step
takes is told by how many an engine made between two readings in which it was busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from specdeck.engine.blackbox.falls import list_falls
from specdeck.engine.blackbox.gaps import list_falls_across, measure_coverage
from specdeck.engine.blackbox.history import History
from specdeck.engine.errors import Unsupported
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.cohorts import Cohorts
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.protocol.requests import RequestLine
from specdeck.engine.protocol.tuning import Tuning
from specdeck.engine.why.cpu_wait import CpuWait, read_waits
from specdeck.engine.why.evidence import (
    Baseline,
    CohortSpan,
    DraftFacts,
    Evidence,
    span_between,
    span_since_start,
)
from specdeck.engine.why.gather import make_evidence, with_baseline

HOUR_S: Final = 3600.0
_BEFORE_S: Final = 1800.0
"""On either side of an hour ago, that an hour ago is."""
_MOST_LOOKS: Final = 48
_LEAST_REQUESTS: Final = 40
"""Of a baseline."""
_MOST_STEPS: Final = 20_000
_SILENCE_S: Final = 60.0
"""Before the last look, that the plugin's word of it is looked for in."""


def recall(history: History, start: float, end: float) -> Evidence:
    """What was recorded from `start` to `end`, in Unix seconds, against the time before.

    Only the life of the engine that was there at the end is looked at. Raises Unsupported where
    no cohorts were recorded.
    """
    looks = _list_looks(history, start, end)
    if not looks:
        reason = "no cohorts are recorded of that time"
        raise Unsupported(reason, remedy="cohorts are recorded once a minute: give a longer time")
    baseline = recall_before(history, start, model=read_model(history, end))
    return recall_looks(history, looks, start, end, baseline=baseline)


@dataclass(frozen=True, slots=True)
class Heard:
    """What an engine that still answers said beside its record; empty or None is what it did not.

    It is of the life of the last look, and not of an earlier moment.
    """

    sample: Sample | None = None
    state: EngineState | None = None
    tuning: Tuning | None = None
    facts: DraftFacts | None = None
    steps: tuple[Step, ...] = ()
    lines: tuple[RequestLine, ...] = ()


NOTHING: Final = Heard()


def recall_looks(
    history: History,
    looks: Sequence[Cohorts],
    start: float,
    end: float,
    *,
    baseline: Baseline | None,
    heard: Heard = NOTHING,
) -> Evidence:
    """The evidence of replies of one life of an engine, with what was recorded of it to `end`, in
    Unix seconds, and of its steps from `start` on. Raises Unsupported of no looks.

    Single steps are not recorded: without those that were heard there are their means.
    """
    readings = [history.reading_at(look.t) for look in looks]
    samples = [None if one is None else one.sample for one in readings]
    last = history.reading_at(end)
    newest = heard.sample or (None if last is None else last.sample)
    if heard.sample is not None:
        samples.append(heard.sample)
    state = heard.state
    if state is None and looks:
        since = looks[-1].t - _SILENCE_S  # at the end the plugin may have been gone
        state = history.last_state(since, end, instance=looks[-1].instance)
    found = make_evidence(
        history.url, looks, heard.lines,
        samples=(samples[0] if samples else None, newest), state=state,
        tuning=heard.tuning or _read_tuning(history, end), facts=heard.facts, steps=heard.steps,
        baseline=baseline, t=end, waits=read_waits(samples),
    )  # fmt: skip
    if heard.steps:
        return found
    return replace(found, step_means=tuple(_list_step_means(history, start, end)))


def make_baseline(history: History, span: CohortSpan, times: Sequence[float]) -> Baseline:
    """A recorded stretch to compare with, and how long threads waited for a CPU between `times`."""
    return Baseline("history", span, url=history.url, waits=_read_waits(history, times))


def compare_with_past(evidence: Evidence, history: History) -> Evidence:
    """What was seen of a live engine, against what is recorded of the time before it was looked at;
    unchanged where that is too little."""
    t = evidence.t if evidence.since_start else evidence.span.start
    before = recall_before(history, t, model=evidence.model)
    return evidence if before is None else with_baseline(evidence, before)


def read_model(history: History, t: float) -> str | None:
    """The name under which the engine served at Unix time `t`; None where none is recorded."""
    reading = history.reading_at(t)
    return None if reading is None or reading.sample is None else reading.sample.model


def is_of_another(history: History, span: CohortSpan, model: str | None) -> bool:
    """Whether `span` is of another model than `model`: a black box is of an address, which an
    engine with another model may have had by then."""
    served = read_model(history, span.end)
    return model is not None and served is not None and served != model


def recall_before(history: History, t: float, *, model: str | None = None) -> Baseline | None:
    """How the engine was an hour before `t`, and before the first fall of its figures since then.

    Where too little of that was recorded, it is the engine's life before the fall. None where
    neither is known, and where it is the past of another engine than one that serves `model`.
    """
    found = _recall_before(history, t)
    return None if found is None or is_of_another(history, found.span, model) else found


def _recall_before(history: History, t: float) -> Baseline | None:
    start = t - HOUR_S - _BEFORE_S
    coverage = measure_coverage(history.readings(start, t), start, t)
    falls = [*list_falls(history, start, t)]
    # After a time without drafts there may be other work, which is not worse for that.
    falls += [one for one in list_falls_across(history, coverage) if one.silence != "unknown"]
    if not falls:
        return recall_hour_ago(history, t)
    first = min(one.earliest for one in falls)
    return recall_hour_ago(history, first) or _recall_life(history, first)


def _recall_life(history: History, t: float) -> Baseline | None:
    """All that requests had done at `t` in that life of the engine, whoever recorded it."""
    cohorts, reading = history.cohorts_at(t), history.reading_at(t)
    state = None if reading is None else reading.state
    if cohorts is None or state is None or state.instance != cohorts.instance:
        return None
    span = span_since_start(cohorts, state.started)
    if span.comparable().total.requests < _LEAST_REQUESTS:
        return None
    return Baseline("life", span, url=history.url)


def recall_hour_ago(history: History, t: float) -> Baseline | None:
    """How the engine was an hour before `t`; what was recorded before, where that is less.

    None where too little was.
    """
    first = history.first
    if not first < t:  # also of an empty one, which is NaN
        return None
    end = t - HOUR_S + _BEFORE_S
    start = t - HOUR_S - _BEFORE_S
    if end < first + _BEFORE_S:
        start, end = first, t
    looks = [one for one in (history.cohorts_at(max(first + 90.0, start)), history.cohorts_at(end))
             if one is not None]  # fmt: skip
    if len(looks) < 2:
        return None
    span = span_between(looks[0], looks[1])
    if span is None or span.comparable().total.requests < _LEAST_REQUESTS:
        return None
    return make_baseline(history, span, [look.t for look in looks])


def _read_waits(history: History, times: Sequence[float]) -> tuple[CpuWait, ...]:
    readings = [history.reading_at(t) for t in times]
    return read_waits([None if one is None else one.sample for one in readings])


def _list_looks(history: History, start: float, end: float) -> list[Cohorts]:
    """The replies of the last life, a dozen times four at most, the oldest first."""
    times = [start, *(t for t, _, _ in history.cohort_steps(start, end) if start < t <= end)]
    if len(times) > _MOST_LOOKS:
        step = (len(times) - 1) / (_MOST_LOOKS - 1)
        times = [times[round(number * step)] for number in range(_MOST_LOOKS)]
    found: list[Cohorts] = []
    for t in times:
        cohorts = history.cohorts_at(t)
        if cohorts is not None and (not found or cohorts.t > found[-1].t):
            found.append(cohorts)
    return [one for one in found if one.instance == found[-1].instance]


def _read_tuning(history: History, t: float) -> Tuning | None:
    document: dict[str, Any] | None = history.document_at("tuning", t)
    if document is None:
        return None
    try:
        return Tuning.from_json(document)
    except WrongType:
        return None


def _list_step_means(history: History, start: float, end: float) -> list[Step]:
    """What steps took on average between two readings, as one step each."""
    found: list[Step] = []
    for older, newer in pairwise(history.readings(start, end)):
        step = _mean_step(older, newer)
        if step is not None:
            found.append(step)
            if len(found) == _MOST_STEPS:
                break
    return found


def _mean_step(older: Reading, newer: Reading) -> Step | None:
    before, after, window = older.state, newer.state, newer.window
    if before is None or after is None or window is None or before.instance != after.instance:
        return None
    made = after.step - before.step
    # An engine that stood still meanwhile made its steps in a part of the time.
    if made < 1 or not before.running or not after.running or before.waiting or after.waiting:
        return None
    seconds = window.seconds / made
    return Step(after.step, newer.t, after.running, after.running, after.k, 0, 0, 0, seconds, 0)
