"""All tests together: causes by how much of the loss they explain, what is ruled out, what not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log1p
from typing import Any, Final, Literal

from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.why.causes import (
    ISSUES,
    Cause,
    Finding,
    Name,
    RuledOut,
    Untold,
    command_of,
)
from specdeck.engine.why.cohort_gaps import Split, compare_cohorts
from specdeck.engine.why.common_k import at_common_k, is_cut_short, is_moved
from specdeck.engine.why.contention import judge_contention
from specdeck.engine.why.draft_fit import judge_draft, judge_k
from specdeck.engine.why.drift import find_drift, merge_drift
from specdeck.engine.why.engine_load import compare_load
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import own_tokens
from specdeck.engine.why.mix import Moved, judge_mix, split_move
from specdeck.engine.why.step_shift import compare_steps

Off = Literal["breaker", "mode", "k"]
"""An open breaker; target-only; k = 0."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What the judgement rests on."""

    start: float
    """Unix time, seconds."""
    end: float
    requests: int
    drafts: int
    steps: int
    acceptance: float | None
    """Accepted over drafted tokens."""
    output_from_drafts: float | None
    """The share of the output that drafts brought, of all tokens but each request's first."""
    seconds_per_step: float | None
    baseline: str | None
    """Where the comparison comes from: `file`, `history` or `life`."""
    baseline_start: float | None
    baseline_end: float | None
    since_start: bool
    """Whether it is the engine's whole life."""
    tokens_per_trial: float | None
    """Drafted tokens that count as one trial; None where each request is one."""
    off: Off | None = None
    """Why the engine drafts nothing at the end of it; None where it does, or that is not known."""

    def as_json(self) -> dict[str, Any]:
        """For a script."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer to why."""

    url: str
    looked: Looked
    causes: tuple[Cause, ...]
    """The one that explains most first."""
    ruled_out: tuple[RuledOut, ...]
    untold: tuple[Untold, ...]
    moved: Moved | None
    """What drafts brought, since the baseline; None without one."""
    missing: tuple[tuple[str, str], ...] = ()
    """What could not be read, and why."""
    options: CommandOptions = NO_OPTIONS
    """What commands have to be given for the engine."""

    def command(self, cause: Cause) -> str:
        """What to try for a cause, for a shell."""
        return command_of(cause, self.url, self.options)

    def as_json(self) -> dict[str, Any]:
        """The document of `specdeck why --json`."""
        return {
            "engine": self.url,
            "looked": self.looked.as_json(),
            "moved": None if self.moved is None else self.moved.as_json(),
            "causes": [_cause_as_json(cause, self.command(cause)) for cause in self.causes],
            "ruled_out": [
                {
                    "cause": one.name,
                    "cost": None if one.cost is None else one.cost.as_json(),
                    "cohort": None if one.group is None else one.group.as_json(),
                }
                for one in self.ruled_out
            ],
            "untold": [
                {
                    "cause": one.name,
                    "reason": one.reason,
                    "cost": None if one.cost is None else one.cost.as_json(),
                }
                for one in self.untold
            ],
            "missing": dict(self.missing),
        }


def _cause_as_json(cause: Cause, command: str) -> dict[str, Any]:
    figure = cause.figure
    return {
        "cause": cause.name,
        "cohort": None if cause.group is None else cause.group.as_json(),
        "figure": {
            "of": figure.of,
            "value": round(figure.value, 5),
            "against": None if figure.against is None else round(figure.against, 5),
        },
        "effect": cause.effect.as_json(),
        "cost": None if cause.cost is None else cause.cost.as_json(),
        "share": None if cause.share is None else round(cause.share, 4),
        "movement": cause.movement,
        "since": cause.since,
        "certain": cause.certain,
        "throttled": cause.throttled,
        "issue": ISSUES.get(cause.name),
        "command": command,
    }


def diagnose(evidence: Evidence) -> Diagnosis:
    """Every test, and the causes ranked by what they explain of the loss."""
    alike = at_common_k(evidence)
    now = alike if is_moved(evidence) else evidence
    compared = compare_cohorts(now, alike, evidence)
    found: list[Finding] = [*compared, *find_drift(now, _list_groups(compared))]
    causes = merge_drift([one for one in found if isinstance(one, Cause)])
    of_cohorts = _list_groups(causes)
    draft = judge_draft(alike, of_cohorts)
    is_short = is_cut_short(evidence, alike)
    if is_short:
        draft = list(map(_doubt, draft))
        found = list(map(_doubt, found)) if now is alike else found
    config = [*draft, judge_k(evidence)]
    if any(isinstance(one, Cause) and one.name == "draft_of_another_target" for one in config):
        config = [one for one in config if not _is_k(one)]  # no k pays there
    load = _judge_time(evidence, causes)
    named = any(cause.movement == "more" for cause in causes)
    mix = judge_mix(alike, is_named=named)
    rest: list[Finding] = [*config, *load, _doubt(mix) if is_short else mix]
    causes += [one for one in rest if isinstance(one, Cause)]
    others = [one for one in (*found, *rest) if not isinstance(one, Cause)]
    told = {cause.name for cause in causes}
    baseline = alike.baseline
    return Diagnosis(
        evidence.url,
        _describe_look(evidence),
        rank(causes),
        tuple(one for one in others if isinstance(one, RuledOut) and one.name not in told),
        tuple(one for one in others if isinstance(one, Untold) and one.name not in told),
        None if baseline is None else split_move(
            baseline.span.comparable(), alike.span.comparable()
        ),
        evidence.missing,
    )  # fmt: skip


def _doubt(finding: Finding) -> Finding:
    """Rules nothing out by what shorter drafts than the engine's, and those alone, have told."""
    if isinstance(finding, RuledOut) and finding.name != "draft_of_another_target":
        return Untold(finding.name, "cut_drafts", finding.cost)
    return finding


_OF_STEPS: Final[tuple[Name, ...]] = (
    "cpu_contention", "step_time_latched", "preemption", "prefix_cache", "prefill_share",
    "beyond_graphs",
)  # fmt: skip


def _judge_time(evidence: Evidence, causes: Sequence[Cause]) -> list[Finding]:
    """What takes the engine's time beside drafting, where it had anything to do."""
    if evidence.is_idle:
        return [Untold(name, "idle") for name in _OF_STEPS]
    steps = judge_contention(evidence, compare_steps(evidence))
    return [*_excuse_steps(steps, causes, evidence), *compare_load(evidence)]


_DEARER: Final = ("adapter", "structured_output")
"""What makes every step of its batch dearer, and is not seen in the steps."""


_LONGER: Final = 1.5
"""Times the tokens of a request from which attention to them may be what slows the steps."""


def _excuse_steps(
    steps: Sequence[Finding], causes: Sequence[Cause], evidence: Evidence
) -> list[Finding]:
    """Steps that are slower, but not where dearer or longer requests came since they were not."""
    came = any(cause.name in _DEARER and cause.movement == "more" for cause in causes)
    return [
        Untold(one.name, "other_requests", one.cost)
        if isinstance(one, Cause)
        and one.name == "step_time_latched"
        and (came or _are_longer(evidence, one.since))
        else one
        for one in steps
    ]


def _are_longer(evidence: Evidence, since: float | None) -> bool:
    """Whether requests have many more tokens since then, or than in the baseline."""
    before: list[CohortSpan] = []
    after = [evidence.span]
    if since is not None:
        before = [span for span in evidence.series if span.end <= since]
        after = [span for span in evidence.series if span.start >= since] or after
    if not before and evidence.baseline is not None:
        before = [evidence.baseline.span]
    was, now = _mean_tokens(before), _mean_tokens(after)
    return was is not None and now is not None and now > _LONGER * was


def _mean_tokens(spans: Sequence[CohortSpan]) -> float | None:
    """Of a request: its prompt and its output; None where none finished."""
    totals = [span.total for span in spans]
    requests = sum(total.requests for total in totals)
    tokens = sum(total.prompt_tokens + total.output_tokens for total in totals)
    return tokens / requests if requests else None


def _list_groups(findings: Sequence[Finding]) -> list[Split]:
    return [
        Split(one.name, one.group)
        for one in findings
        if isinstance(one, Cause) and one.group is not None
    ]


def _is_k(finding: Finding) -> bool:
    return isinstance(finding, Cause) and finding.name == "k_beyond_what_pays"


def rank(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """The cause that explains most of the loss first; then the one that is surer.

    What a fact proves stands above what a figure shows, what has no price below, and last what the
    baseline had as well: a gap that was always there says nothing of what became worse.
    """
    parts = [0.0 if cause.cost is None else _weigh(cause.cost.value) for cause in causes]
    whole = sum(parts)
    shared = [
        replace(cause, share=part / whole) if whole and cause.cost is not None else cause
        for cause, part in zip(causes, parts, strict=True)
    ]
    return tuple(sorted(shared, key=_order))


_MOST_COST: Final = 0.99


def _weigh(cost: float) -> float:
    """What a cost adds to others: speeds that are left multiply, so their logarithms add up."""
    return -log1p(-min(_MOST_COST, max(0.0, cost)))


def sum_costs(causes: Sequence[Cause]) -> float | None:
    """What all causes with a known cost take of the speed together; None of fewer than two.

    >>> from specdeck.engine.why.causes import Figure
    >>> from specdeck.engine.why.figures import Estimate
    >>> one, half = (Estimate(value, 0.0, 1.0) for value in (0.6, 0.5))
    >>> figure = Figure("step_ms", 2.0, 1.0)
    >>> causes = [Cause("step_time_latched", figure, cost, cost) for cost in (one, half)]
    >>> round(sum_costs(causes), 6)
    0.8
    """
    costs = [cause.cost.value for cause in causes if cause.cost is not None]
    return 1 - exp(-sum(map(_weigh, costs))) if len(costs) > 1 else None


def _order(cause: Cause) -> tuple[bool, bool, bool, float, float]:
    # A draft that nobody accepts explains whatever else is seen, and has often no price.
    whole = cause.certain or cause.name == "draft_of_another_target"
    old = cause.movement == "always"
    cost = cause.cost
    if cost is None:
        return (not whole, old, True, 0.0, -cause.effect.low)
    return (not whole, old, False, -round(cost.value, 3), -cost.low)


def _find_switch(state: EngineState | None) -> Off | None:
    if state is None or state.method is None:
        return None
    if state.breaker == "open":
        return "breaker"
    if state.mode == "target-only":
        return "mode"
    return None if state.k else "k"


def _describe_look(evidence: Evidence) -> Looked:
    span, baseline = evidence.span, evidence.baseline
    total = span.total
    steps = evidence.steps or evidence.step_means
    timed = [step.seconds for step in steps if step.seconds]
    return Looked(
        span.start, span.end, total.requests, total.drafts, len(evidence.steps), total.acceptance,
        total.accepted / own_tokens(total) if own_tokens(total) > 0 else None,
        sum(timed) / len(timed) if timed else None,
        None if baseline is None else baseline.source,
        None if baseline is None else baseline.span.start,
        None if baseline is None else baseline.span.end,
        evidence.since_start,
        evidence.spread.tokens,
        _find_switch(evidence.state),
    )  # fmt: skip
