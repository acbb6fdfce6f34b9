"""Causes of low or falling acceptance and speed: a record each, and what is known of every kind.

A cause is told by its name, which is data: nothing reads the sentences that are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions
from specdeck.engine.why.figures import Estimate

Name = Literal[
    "prompt_length", "cold_cache", "structured_output", "adapter", "temperature", "cohort_drift",
    "every_cohort_fell", "draft_of_another_target", "traffic_mix", "k_beyond_what_pays",
    "step_time_latched", "cpu_contention", "prefill_share", "prefix_cache", "preemption",
    "beyond_graphs",
]  # fmt: skip
NAMES: tuple[Name, ...] = get_args(Name)

Movement = Literal["always", "more", "fell", "unknown"]
"""Against the baseline: the cohort was as poor before; it is as it was, and more of the traffic is
of it; its own acceptance fell; there is no baseline that tells."""

Reason = Literal[
    "few_requests", "no_drafts", "no_contrast", "no_baseline", "no_steps", "few_steps", "not_timed",
    "not_timed_here",
    "not_told", "wide", "policy_moves_k", "no_pieces", "in_proportion", "other_requests",
    "no_waiting", "cpu_contention", "named_by_cause", "idle", "cut_drafts",
]  # fmt: skip

ISSUES: Mapping[Name, str] = {
    "prompt_length": "vllm#47930",
    "cohort_drift": "vllm#41838",
    "draft_of_another_target": "vllm#46725",
    "every_cohort_fell": "vllm#46725",
    "k_beyond_what_pays": "vllm#49163",
    "prefix_cache": "vllm#54360",
    "beyond_graphs": "vllm#49548",
}
"""Where vLLM's own users met it."""


@dataclass(frozen=True, slots=True)
class Group:
    """The requests that a cause is about: one dimension of the cohorts, and words of it."""

    by: str
    words: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For a script."""
        return {"by": self.by, "words": list(self.words)}


@dataclass(frozen=True, slots=True)
class Figure:
    """What is seen, beside what it is compared with."""

    of: Literal[
        "acceptance", "output_from_drafts", "step_ms", "time_share", "cached_share",
        "per_request", "tokens_per_second", "same_vocabulary", "waiting_ms",
    ]  # fmt: skip
    value: float
    against: float | None
    """What it would be without the cause; None where nothing tells."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that makes an engine accept less, or work slower, beyond chance."""

    name: Name
    figure: Figure
    effect: Estimate
    """How far the figure is off, in its own unit."""
    cost: Estimate | None
    """The share that it takes of the speed that there would be without it alone: 0.2 is a fifth of
    those tokens a second. Of several causes each takes its share of what the others leave, so that
    they do not add up. None where that is not known."""
    group: Group | None = None
    movement: Movement = "unknown"
    since: float | None = None
    """Unix time at which it began; None where that is not seen."""
    certain: bool = False
    """Whether a fact says so and not a figure."""
    suggested: int | None = None
    """The k, or the number of seats, that its command tries."""
    throttled: float | None = None
    """The share of the time that a quota kept the engine from running; None where that is not
    known, or of no account."""
    share: float | None = None
    """Of what all causes cost together, which is one in all; filled in by `ranking`."""


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Something that was looked at and costs next to nothing."""

    name: Name
    cost: Estimate | None
    """None where there is none of it at all."""
    group: Group | None = None


@dataclass(frozen=True, slots=True)
class Untold:
    """Something that what is known does not decide."""

    name: Name
    reason: Reason
    cost: Estimate | None = None
    """As far as it is known."""


Finding = Cause | RuledOut | Untold

MATERIAL = 0.02
"""Of the speed: a cause that takes less is none."""
RULED_OUT = 0.05
"""Of the speed: what takes less, with 95 % confidence, is ruled out."""


def dismiss(name: Name, cost: Estimate | None, group: Group | None = None) -> RuledOut | Untold:
    """What is to be said of something that no test found: ruled out as far as the interval goes.

    >>> dismiss("adapter", Estimate(0.0, -0.01, 0.02))
    RuledOut(name='adapter', cost=Estimate(value=0.0, low=-0.01, high=0.02), group=None)
    >>> dismiss("adapter", Estimate(0.1, -0.1, 0.3)).reason
    'wide'
    """
    if cost is not None and cost.high > RULED_OUT:
        return Untold(name, "wide", cost)
    return RuledOut(name, cost, group)


RESTING: Final = "policy=goodput goodput.rest_rounds=16"
"""Requests whose drafts are rejected again and again draft no more."""
_TRIALS: Mapping[Name, str] = {
    "prompt_length": RESTING,
    "structured_output": RESTING,
    "adapter": RESTING,
    "temperature": RESTING,
    "k_beyond_what_pays": "k={suggested}",
    "prefill_share": "policy=goodput",
    "traffic_mix": "policy=goodput",
    "beyond_graphs": "k={suggested}",
}
"""What may mend a cause, as `specdeck set` takes it; judged by a trial."""
RESYNC: Final = (
    "specdeck set {steer} mode=target-only fallback=cold && specdeck set {steer} mode=speculate"
)
"""The draft's KV cache is filled anew."""
_COMMANDS: Mapping[Name, str] = {
    "cold_cache": RESYNC,
    "cohort_drift": RESYNC,
    "every_cohort_fell": "specdeck fingerprint diff {read}",
    "draft_of_another_target": "specdeck set {steer} mode=target-only",
    # On the engine's machine; a restart would interrupt every request, and hide what it was.
    "step_time_latched": "top -b -n 1 | head -20; nvidia-smi -q -d CLOCK,PERFORMANCE",
    "cpu_contention": "top -b -n 1 -o %CPU | head -20",
    "prefix_cache": "vllm serve … --gpu-memory-utilization 0.95",
    "preemption": "vllm serve … --max-num-seqs {suggested}",
}
_QUOTA = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat"


def command_of(cause: Cause, url: str, options: CommandOptions = NO_OPTIONS) -> str:
    """The command to try, for a shell; `options` are what it has to be given for that engine.

    >>> fell = Cause("every_cohort_fell", Figure("acceptance", 0.4, 0.6), None, None)
    >>> command_of(fell, "http://h/;id")
    "specdeck fingerprint diff 'http://h/;id'"
    """
    if cause.throttled is not None and cause.throttled >= MATERIAL:
        return _QUOTA
    trial = trial_of(cause)
    command = (
        _COMMANDS[cause.name] if trial is None else f"specdeck set {{steer}} {trial} --trial 40"
    )
    return format_command(command, url, options, suggested=cause.suggested)


def format_command(
    command: str, url: str, options: CommandOptions, *, suggested: int | None = None
) -> str:
    """A command with the engine in the place of `{steer}` and `{read}`, for a shell."""
    return command.format(steer=options.steer(url), read=options.read(url), suggested=suggested)


def trial_of(cause: Cause) -> str | None:
    """What to try for `cause`, as `specdeck set` takes it; None of what no trial mends.

    >>> seen = Figure("tokens_per_second", 1.0, 1.2)
    >>> trial_of(Cause("k_beyond_what_pays", seen, Estimate(0.2, 0.1, 0.3), None, suggested=2))
    'k=2'
    """
    words = _TRIALS.get(cause.name)
    return None if words is None else words.format(suggested=cause.suggested)
