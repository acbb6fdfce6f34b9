"""A check among its earlier ones: what changed since, and all of them side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from specdeck.engine.divergence.arms import changed_facts
from specdeck.engine.divergence.statistics import Rate, above
from specdeck.engine.divergence.verdict import Word
from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.protocol.codec import Count, DraftLength, OneOf, Within, WrongType, read_record
from specdeck.engine.store.checks import GREEDY, SAMPLED, Run, unreadable
from specdeck.engine.store.database import left_out_line
from specdeck.engine.text import UNKNOWN, format_count, format_percent, format_value

if TYPE_CHECKING:
    from specdeck.engine.divergence.prompts import PromptSet
    from specdeck.engine.divergence.sampled import Distributions

PAST_CHECKS_HEAD = (
    "UTC", "METHOD", "DRAFT", "K", "REFERENCE", "PROMPTS", "DIFFER", "95%", "FLOOR", "TIES",
    "MATERIAL", "STRUCT.", "TOK/S", "REF. TOK/S", "VERDICT", "PATH",
)  # fmt: skip
_ASKED = ("prompts", "settings")
_DRAFT = "model.draft."
"""Facts of its content; they hold no path, so the digest follows a draft wherever it lies."""


@dataclass(frozen=True, slots=True)
class PastCheck:
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


_Share = Annotated[float, Within(0.0, 1.0)]


class Counts(NamedTuple):
    """Of a finished run: the prompts that both arms answered, and those that differ."""

    mismatches: Count
    prompts: Count


class ExcessFigures(NamedTuple):
    """How much more often the arms of a finished run differ than its noise floors explain."""

    rate: float
    ci95: tuple[float, float]
    upper95: float
    """Below it with 95 %."""


class _Weighed(NamedTuple):
    excess: ExcessFigures | None = None


class _Pairs(NamedTuple):
    mismatches: Count = 0
    pairs: Count = 0


class _Parted(NamedTuple):
    streamed: _Pairs = _Pairs()
    noise_floor: _Pairs = _Pairs()


class _Said(NamedTuple):
    verdict: Annotated[Word, OneOf(("pass", "fail", "inconclusive"))] | None = None


class _Facts(NamedTuple):
    """What an arm said of itself."""

    model: str | None = None
    vllm: str | None = None
    method: str | None = None
    k: DraftLength | None = None
    k_max: DraftLength | None = None
    mode: str | None = None
    details: Mapping[str, Any] | None = None


class _AskedArm(NamedTuple):
    grade: str | None = None
    facts: _Facts | None = None


class _RunFacts(NamedTuple):
    """What a run was asked with."""

    serving: _AskedArm = _AskedArm()
    reference: _AskedArm = _AskedArm()
    prompts: str | None = None
    settings: Mapping[str, Any] | None = None


class _ArmResult(NamedTuple):
    k: DraftLength | None
    grade: str
    tokens_per_second: float | None
    fingerprint: str | None


class _Arms(NamedTuple):
    serving: _ArmResult
    reference: _ArmResult


class _Floor(NamedTuple):
    rate: _Share | None


class _Classes(NamedTuple):
    near_tie: Count
    material: Count
    structural: Count


class _Summary(NamedTuple):
    """What came of a run."""

    prompts: Count
    mismatches: Count
    mismatch_rate: _Share | None
    ci95: tuple[_Share, _Share] | None
    noise_floor: _Floor
    classes: _Classes
    verdict: str
    arms: _Arms


_T = TypeVar("_T")


def _read(kind: type[_T], data: object) -> _T:
    try:
        return read_record(kind, data)
    except WrongType as error:
        raise _refuse(error) from error


def _refuse(reason: WrongType) -> UsageError:
    found = unreadable(reason, remedy="it was written by another specdeck")
    found.__cause__ = reason  # which `keep_readable` tells
    return found


def read_counts(run: Run) -> Counts:
    """The counts of a finished run; raises UsageError for one that cannot be read."""
    found = _read(Counts, run.summary)
    if found.mismatches > found.prompts:
        raise _refuse(WrongType("more prompts differ than were asked"))
    return found


def read_excess(run: Run) -> ExcessFigures | None:
    """What the arms of a finished run differ beyond its floors; None where it does not say.

    Raises UsageError for one that cannot be read.
    """
    return _read(_Weighed, run.summary).excess


def read_streamed(run: Run) -> tuple[Rate, Rate]:
    """How often the streamed answers of a finished run differ, and the reference from itself.

    Of nothing where it does not say. Raises UsageError for one that cannot be read.
    """
    found = _read(_Parted, run.summary)
    if any(one.mismatches > one.pairs for one in found):
        raise _refuse(WrongType("more answers differ than were asked for"))
    ours, floor = (Rate(one.mismatches, one.pairs) for one in found)
    return ours, floor


def read_verdict(run: Run) -> Word | None:
    """The word of a finished run's verdict, None where it has none.

    Raises UsageError for one that cannot be read.
    """
    return _read(_Said, run.summary).verdict


def past_checks(runs: Sequence[Run]) -> tuple[PastCheck, ...]:
    """What the store has of finished runs, in the order given; raises UsageError for another's."""
    return tuple(_past_check(run) for run in runs if run.summary is not None)


def keep_readable(runs: Sequence[Run]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The finished ones of `runs` that `past_checks` can read, and a line on the others."""
    kept: list[Run] = []
    reasons: list[str] = []
    for run in runs:
        if run.summary is None:
            continue
        try:
            _past_check(run)
        except UsageError as error:
            reasons.append(str(error.__cause__))
        else:
            kept.append(run)
    return tuple(kept), (left_out_line("check", reasons),) if reasons else ()


def comparable_checks(runs: Sequence[Run]) -> tuple[PastCheck, ...]:
    """The runs before the first of `runs` with its prompts and settings, whatever draft or k.

    A damaged one is left out: the check that was made now is not lost for it.
    """
    if not runs:
        return ()
    now, *earlier = runs
    same = [run for run in earlier if all(run.facts.get(n) == now.facts.get(n) for n in _ASKED)]
    return past_checks(keep_readable(same)[0])


def past_check_cells(line: PastCheck) -> tuple[str, ...]:
    """A line for reading, as PAST_CHECKS_HEAD names it."""
    low, high = (None, None) if line.ci95 is None else line.ci95
    k = "target-only" if line.mode == "target-only" else format_value(line.k)
    return (
        f"{datetime.fromtimestamp(line.t, UTC):%Y-%m-%d %H:%M}",
        line.method or UNKNOWN,
        line.draft or UNKNOWN,
        k,
        line.grade,
        str(line.prompts),
        format_percent(line.mismatch_rate),
        f"{format_percent(low)} to {format_percent(high)}",
        format_percent(line.floor_rate),
        *(str(line.classes[name]) for name in ("near_tie", "material", "structural")),
        _speed(line.serving_tokens_per_second),
        _speed(line.reference_tokens_per_second),
        line.verdict,
        line.fingerprint or UNKNOWN,
    )


def _past_check(run: Run) -> PastCheck:
    asked, found = _read(_RunFacts, run.facts), _read(_Summary, run.summary)
    counts, facts = read_counts(run), asked.serving.facts or _Facts()
    max_tokens = (asked.settings or {}).get("max_tokens")
    return PastCheck(
        t=run.finished or run.t,
        method=facts.method,
        draft=_draft(facts.details or {}),
        k=found.arms.serving.k,
        mode=facts.mode,
        grade=found.arms.reference.grade,
        prompt_set=asked.prompts,
        max_tokens=max_tokens if isinstance(max_tokens, int) else None,
        prompts=counts.prompts,
        mismatches=counts.mismatches,
        mismatch_rate=found.mismatch_rate,
        ci95=found.ci95,
        floor_rate=found.noise_floor.rate,
        classes=found.classes._asdict(),
        serving_tokens_per_second=found.arms.serving.tokens_per_second,
        reference_tokens_per_second=found.arms.reference.tokens_per_second,
        verdict=found.verdict,
        fingerprint=found.arms.serving.fingerprint,
    )


def _draft(details: Mapping[str, Any]) -> str | None:
    known = {name: value for name, value in details.items() if name.startswith(_DRAFT)}
    return hashlib.sha256(canonical(known)).hexdigest()[:8] if known else None


def _speed(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


@dataclass(frozen=True, slots=True)
class History:
    """Earlier runs with the same prompts, settings and kind of reference."""

    runs: int
    rate: float | None
    """Of all of them together; None without any."""
    p: float | None
    """The chance of so high a rate as now, were it what it was; None without any."""
    changed: tuple[str, ...]
    """Facts of the serving engine that were others in the run before."""

    def line(self, rate: float | None) -> str:
        """One line for the operator.

        >>> History(30, 0.012, 0.03, ("vllm",)).line(0.021)
        '2.10%, was 1.20% for 30 runs; the fingerprint changed in: vllm'
        """
        runs = format_count(self.runs, "run")
        was = "the first run" if self.rate is None else f"was {self.rate:.2%} for {runs}"
        return f"{format_percent(rate)}, {was}{_format_changed(self.changed)}"


def compare_with_history(runs: Sequence[Run]) -> History:
    """Compares the first of `runs`, which come the newest first, with the others like it."""
    now, like = runs[0], comparable_runs(runs)
    if not like:
        return History(0, None, None, ())
    counts = [read_counts(run) for run in like]
    past = Rate(sum(one.mismatches for one in counts), sum(one.prompts for one in counts))
    present = Rate(*read_counts(now)) if now.summary else Rate(0, 0)
    changed = changed_facts(run_details(like[0]), run_details(now))
    return History(len(like), past.rate, above(present, past), changed)


def comparable_runs(runs: Sequence[Run]) -> list[Run]:
    """The 30 latest before the first of `runs` with its prompts, settings and kind of reference.

    And with its models: a run that has not kept them may be of any. A damaged one is left out.
    """
    now, *earlier = runs
    own = _read(_RunFacts, now.facts)
    return [run for run in earlier if run.summary and _is_like(run, own)][:30]


def _is_like(run: Run, own: _RunFacts) -> bool:
    try:
        other = _read(_RunFacts, run.facts)
        if (run.facts.get("kind") or GREEDY) == GREEDY:
            read_counts(run)
    except UsageError:
        return False
    models = zip(_models(other), _models(own), strict=True)
    return _kind(other) == _kind(own) and all(a == b or None in (a, b) for a, b in models)


def _kind(facts: _RunFacts) -> tuple[Any, ...]:
    return facts.prompts, facts.settings, facts.reference.grade


def _models(facts: _RunFacts) -> tuple[str | None, ...]:
    """The names that both arms were asked by; None where a run has not kept them."""
    return tuple(arm.facts and arm.facts.model for arm in (facts.serving, facts.reference))


def run_details(run: Run) -> dict[str, Any]:
    """The facts of a run's serving engine, flat; raises UsageError where they cannot be read."""
    facts = _read(_RunFacts, run.facts).serving.facts or _Facts()
    named = {name: getattr(facts, name) for name in ("vllm", "method", "k", "k_max", "mode")}
    return {**named, **(facts.details or {})}


@dataclass(frozen=True, slots=True)
class SampledHistory:
    """Earlier runs with the same prompts, sampling and kind of reference."""

    runs: int
    failed: int
    inconclusive: int
    changed: tuple[str, ...]
    """Facts of the serving engine that were others in the run before."""

    def line(self) -> str:
        """One line for the operator.

        >>> SampledHistory(5, 1, 0, ("vllm",)).line()
        'of 5 earlier runs 1 failed; the fingerprint changed in: vllm'
        """
        if not self.runs:
            return "the first run"
        said = f"of {format_count(self.runs, 'earlier run')} {self.failed or 'none'} failed"
        if self.inconclusive:
            said += f", {self.inconclusive} inconclusive"
        return said + _format_changed(self.changed)


def _format_changed(names: Sequence[str]) -> str:
    return f"; the fingerprint changed in: {', '.join(names)}" if names else ""


def sampled_run(found: Distributions, prompts: PromptSet, t: float) -> Run:
    """A finished run as the store keeps it, at Unix time `t`; it has no number yet."""
    serving, reference = found.arms
    data = found.as_json()
    settings = {name: data[name] for name in ("samples", "tokens", "temperature")}
    facts = {"kind": SAMPLED, "serving": serving.as_json(), "reference": reference.as_json(),
             "settings": settings, "prompts": prompts.digest}  # fmt: skip
    key = hashlib.sha256(canonical({**facts, "t": t})).hexdigest()[:32]
    plain = json.loads(json.dumps([facts, data]))  # as it is read again
    return Run(0, key, t, serving.url, t, plain[0], {}, plain[1])


def compare_with_sampled_history(runs: Sequence[Run]) -> SampledHistory:
    """Compares the first of `runs`, which come the newest first, with the others like it."""
    like = comparable_runs(runs)
    if not like:
        return SampledHistory(0, 0, 0, ())
    words = [(run.summary or {}).get("verdict") for run in like]
    return SampledHistory(
        len(like),
        words.count("fail"),
        words.count("inconclusive"),
        changed_facts(run_details(like[0]), run_details(runs[0])),
    )
