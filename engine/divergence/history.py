"""A check among its earlier ones: what changed since, and all of them side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from specdeck.engine.divergence.arms import changed_facts
from specdeck.engine.divergence.statistics import Rate, above
from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.store.checks import SAMPLED, Checks, Run
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


def past_checks(runs: Sequence[Run]) -> tuple[PastCheck, ...]:
    """What the store has of finished runs, in the order given; raises UsageError for another's."""
    try:
        return tuple(_past_check(run, run.summary) for run in runs if run.summary is not None)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise UsageError(
            "a check in the store cannot be read", remedy="it was written by another specdeck"
        ) from error


def comparable_checks(runs: Sequence[Run]) -> tuple[PastCheck, ...]:
    """The runs before the first of `runs` with its prompts and settings, whatever draft or k."""
    if not runs:
        return ()
    now, *earlier = runs
    same = [run for run in earlier if all(run.facts.get(n) == now.facts.get(n) for n in _ASKED)]
    return past_checks(same)


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


def _past_check(run: Run, summary: Mapping[str, Any]) -> PastCheck:
    facts = run.facts.get("serving", {}).get("facts", {})
    arms, ci = summary["arms"], summary["ci95"]
    return PastCheck(
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
    past = Rate(
        sum(int(run.summary["mismatches"]) for run in like if run.summary),
        sum(int(run.summary["prompts"]) for run in like if run.summary),
    )
    summary = now.summary or {"mismatches": 0, "prompts": 0}
    present = Rate(int(summary["mismatches"]), int(summary["prompts"]))
    changed = changed_facts(run_details(like[0]), run_details(now))
    return History(len(like), past.rate, above(present, past), changed)


def comparable_runs(runs: Sequence[Run]) -> list[Run]:
    """The 30 latest before the first of `runs` with its prompts, settings and kind of reference.

    And with its models: a run that has not kept them may be of any.
    """
    now, *earlier = runs
    return [run for run in earlier if _same_kind(run, now) and run.summary][:30]


def _same_kind(run: Run, other: Run) -> bool:
    if _kind(run) != _kind(other):
        return False
    models = zip(_models(run), _models(other), strict=True)
    return all(one == two or None in (one, two) for one, two in models)


def _kind(run: Run) -> tuple[Any, ...]:
    reference = run.facts.get("reference", {})
    return run.facts.get("prompts"), run.facts.get("settings"), reference.get("grade")


def _models(run: Run) -> tuple[str | None, ...]:
    """The names that both arms were asked by; None where a run has not kept them."""
    arms = (run.facts.get(name, {}).get("facts") or {} for name in ("serving", "reference"))
    return tuple(facts.get("model") for facts in arms)


def run_details(run: Run) -> dict[str, Any]:
    """The facts of a run's serving engine, flat."""
    facts = run.facts.get("serving", {}).get("facts", {})
    named = {name: facts.get(name) for name in ("vllm", "method", "k", "k_max", "mode")}
    return {**named, **(facts.get("details") or {})}


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


def record_sampled(
    found: Distributions, prompts: PromptSet, store: Checks, t: float
) -> SampledHistory:
    """Writes a finished run down, at Unix time `t`; how it stands to those before it."""
    serving, reference = found.arms
    data = found.as_json()
    settings = {name: data[name] for name in ("samples", "tokens", "temperature")}
    facts = {"kind": SAMPLED, "serving": serving.as_json(), "reference": reference.as_json(),
             "settings": settings, "prompts": prompts.digest}  # fmt: skip
    key = hashlib.sha256(canonical({**facts, "t": t})).hexdigest()[:32]
    run = store.begin(key, t, serving.url, facts)
    store.finish(run.id, t, data)
    return compare_with_sampled_history(store.history(serving.url, kind=SAMPLED))


def compare_with_sampled_history(runs: Sequence[Run]) -> SampledHistory:
    """Compares the first of `runs`, which come the newest first, with the others like it."""
    like = comparable_runs(runs)
    if not like:
        return SampledHistory(0, 0, 0, ())
    words = [run.summary["verdict"] for run in like if run.summary]
    return SampledHistory(
        len(like),
        words.count("fail"),
        words.count("inconclusive"),
        changed_facts(run_details(like[0]), run_details(runs[0])),
    )
