"""Causes, what is ruled out and what is not known, in words of a line; for a person to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from specdeck.engine.text import format_duration, oneline
from specdeck.engine.why.causes import (
    ISSUES,
    MATERIAL,
    Cause,
    Figure,
    Group,
    Movement,
    Name,
    Reason,
    RuledOut,
    Untold,
)
from specdeck.engine.why.figures import Estimate
from specdeck.engine.why.ranking import Diagnosis, Looked, Off, sum_costs

LocalTime = Callable[[float], time.struct_time]

TITLES: Final[Mapping[Name, str]] = {
    "prompt_length": "prompt length",
    "cold_cache": "prompts from the prefix cache that the draft has not seen",
    "structured_output": "rules for the output",
    "adapter": "LoRA adapter",
    "temperature": "sampled requests",
    "cohort_drift": "slow drift in one cohort",
    "every_cohort_fell": "every cohort fell alike",
    "draft_of_another_target": "the draft of another target",
    "traffic_mix": "another mix of traffic",
    "k_beyond_what_pays": "k beyond what pays",
    "step_time_latched": "every step became slower and stays so",
    "cpu_contention": "the machine's CPUs are shared",
    "prefill_share": "prompts take the steps' time",
    "prefix_cache": "prompts are no longer in the prefix cache",
    "preemption": "requests are preempted",
    "beyond_graphs": "batches beyond the CUDA graphs",
}
_REASONS: Final[Mapping[Reason, str]] = {
    "few_requests": "too few requests finished: --for 2m",
    "no_drafts": "nothing was drafted",
    "no_contrast": "all requests are alike in it",
    "no_baseline": "needs a baseline: --against FILE",
    "no_steps": "single steps are not known (a recording has none)",
    "few_steps": "too few steps",
    "not_timed": "no other k was timed: run specdeck sweep",
    "not_timed_here": "no step at this k and at a smaller one was timed with as many"
    " requests as run now: run specdeck sweep under this load",
    "not_told": "the engine did not say",
    "wide": "the interval is too wide",
    "policy_moves_k": "the policy chooses k",
    "no_pieces": "needs a longer look: --for 60s",
    "in_proportion": "steps are slower in proportion, as on a busy machine",
    "other_requests": "more requests have an adapter or a grammar now, whose steps take longer",
    "no_waiting": "needs Linux and a newer plugin in the engine",
    "named_by_cause": "a cause above says which requests there are more of",
    "cut_drafts": "k moved, and what was drafted at every k alone compares",
    "idle": "no request ran while it was looked at",
    "cpu_contention": "its threads waited for a CPU, and as long as that",
}
_NOUNS: Final[Mapping[str, str]] = {
    "prompt": "prompts of {} tokens",
    "cached": "{} of the prompt cached",
    "structured": "structured output {}",
    "adapter": "adapter {}",
    "temperature": "{} requests",
}
_RULES: Final[Mapping[str, str]] = {
    "allowed_tokens": "allowed tokens only",
    "logit_bias": "a logit bias",
    "bad_words": "bad words",
    "penalties": "penalties",
}
"""Of `structured`, what is no structure."""
_ADVICE: Final[Mapping[Name, str]] = {
    "step_time_latched": "look first, on its machine: what shares it, clocks and power limits, its "
    "log of that time; a restart is the last step: it interrupts every request",
    "prefix_cache": "this takes a restart, which interrupts every request",
    "preemption": "this takes a restart, which interrupts every request",
}
"""What is to be known before the command is run."""
_MOVEMENTS: Final[Mapping[Movement, str]] = {
    "always": "it was so in the baseline",
    "more": "it was so in the baseline, and there is more of it now",
    "fell": "it was better in the baseline",
    "unknown": "",
}


def describe_group(group: Group) -> str:
    """The requests that a cause is about.

    >>> describe_group(Group("prompt", ("256-1023", "1024-4095")))
    'prompts of 256-4095 tokens'
    >>> describe_group(Group("structured", ("json", "regex")))
    'structured output json, regex'
    >>> describe_group(Group("structured", ("allowed_tokens", "json")))
    'output with allowed tokens only, json'
    """
    if group.by == "prompt":
        first, last = group.words[0], group.words[-1]
        low = first.partition("-")[0].rstrip("+")
        high = last.rpartition("-")[2]
        words = last if first == last else f"{low}+" if high.endswith("+") else f"{low}-{high}"
    elif group.by == "structured" and any(word in _RULES for word in group.words):
        return oneline("output with " + ", ".join(_RULES.get(word, word) for word in group.words))
    else:
        words = ", ".join(group.words)
    return oneline(_NOUNS.get(group.by, "{}").format(words))


def percent(share: float) -> str:
    """A share, whole.

    >>> percent(0.123), percent(-0.001)
    ('12 %', '0 %')
    """
    return f"{round(share * 100) or 0} %"


def interval(estimate: Estimate) -> str:
    """What a share lies between.

    >>> interval(Estimate(0.12, 0.049, 0.2))
    '5 to 20 %'
    """
    return f"{round(estimate.low * 100) or 0} to {round(estimate.high * 100) or 0} %"


def describe_cost(cost: Estimate | None) -> str:
    """What a cause takes of the speed.

    >>> describe_cost(Estimate(0.12, 0.05, 0.2)), describe_cost(None)
    ('takes 12 % of the speed without it (5 to 20 %)', 'what it costs is not known')
    """
    if cost is None:
        return "what it costs is not known"
    return f"takes {percent(cost.value)} of the speed without it ({interval(cost)})"


def describe_together(causes: Sequence[Cause]) -> str | None:
    """What several causes take together, as their costs do not add up; None of a single one."""
    together = sum_costs(causes)
    if together is None:
        return None
    return f"together they take {percent(together)} of the speed: each, of what the others leave"


def describe_figure(cause: Cause) -> str:
    """What is seen, beside what it would be."""
    figure, effect = cause.figure, cause.effect
    if figure.of == "acceptance":
        return f"{percent(figure.value)} of first drafted tokens accepted ({interval(effect)})"
    if figure.of == "output_from_drafts":
        text = f"{percent(figure.value)} of the output comes from drafts"
        if figure.against is None:
            return text
        return f"{text}, {percent(figure.against)} without it ({interval(effect)} apart)"
    if figure.of == "step_ms":
        before = "–" if figure.against is None else f"{figure.against:.1f} ms"
        ends = f"{effect.low:+.1f} to {effect.high:+.1f}"
        return f"a step takes {figure.value:.1f} ms, before {before} ({ends} ms)"
    if figure.of == "same_vocabulary":
        return "the draft's vocabulary is not the target's"
    return _describe_other(figure, effect)


def _describe_other(figure: Figure, effect: Estimate) -> str:
    if figure.of == "waiting_ms":
        before = "" if figure.against is None else f", before {figure.against:.1f} ms"
        ends = f"{effect.low:.1f} to {effect.high:.1f} ms"
        return f"its threads wait {figure.value:.1f} ms of a step for a CPU{before} ({ends})"
    if figure.of == "per_request":
        return f"{figure.value:.2f} times a request ({effect.low:.2f} to {effect.high:.2f})"
    if figure.of == "cached_share":
        before = "–" if figure.against is None else percent(figure.against)
        return f"{percent(figure.value)} of requests have half their prompt cached, before {before}"
    if figure.of == "tokens_per_second":
        return f"{percent(effect.value)} more tokens/s without it ({interval(effect)})"
    before = "" if figure.against is None else f", before {percent(figure.against)}"
    return f"{percent(figure.value)} of the time{before} ({interval(effect)})"


def describe_cause(cause: Cause, local: LocalTime = time.localtime) -> list[str]:
    """A cause in lines: what and whom, the figure, what it costs; without its command."""
    title = TITLES[cause.name]
    if cause.group is not None and cause.name != "prefix_cache":
        title += f": {describe_group(cause.group)}"
    if (issue := ISSUES.get(cause.name)) is not None:
        title += f" ({issue})"
    since = "" if cause.since is None else f", since {clock(cause.since, local)}"
    lines = [title, f"{describe_figure(cause)}{since}"]
    cost = describe_cost(cause.cost)
    if cause.share is not None:
        cost += f"; {percent(cause.share)} of the loss that is explained"
    lines.append(cost)
    if cause.throttled is not None and cause.throttled >= MATERIAL:
        lines.append(f"a quota kept it from running {percent(cause.throttled)} of the time")
    if cause.name == "draft_of_another_target" and not cause.certain:
        lines.append("or text that no draft can guess: no fact tells the two apart")
    if moved := _MOVEMENTS[cause.movement]:
        lines.append(moved)
    if (advice := _ADVICE.get(cause.name)) is not None:
        lines.append(advice)
    return lines


def describe_ruled_out(one: RuledOut) -> str:
    """What is ruled out, and what it costs at most."""
    title = TITLES[one.name]
    if one.name == "draft_of_another_target":
        return f"{title}: its first tokens are accepted"
    if one.cost is None:
        return f"{title}: there is none"
    return f"{title}: at most {percent(max(0.0, one.cost.high))} of the speed"


def _describe_reason(one: Untold) -> str:
    text = _REASONS[one.reason]
    if one.reason == "wide" and one.cost is not None:
        text += f" ({interval(one.cost)} of the speed)"
    return text


def list_untold(untold: Iterable[Untold]) -> list[str]:
    """What is not known, a line for each reason.

    >>> names: list[Name] = ["adapter", "preemption", "temperature"]
    >>> reasons: list[Reason] = ["no_drafts", "no_steps", "no_drafts"]
    >>> list_untold([Untold(*pair) for pair in zip(names, reasons)])[0]
    'LoRA adapter; sampled requests: nothing was drafted'
    """
    lines: dict[str, list[str]] = {}
    for one in untold:
        lines.setdefault(_describe_reason(one), []).append(TITLES[one.name])
    return [f"{'; '.join(titles)}: {reason}" for reason, titles in lines.items()]


def list_commands(diagnosis: Diagnosis) -> list[str | None]:
    """What to try for each cause; None where it is what is to be tried for an earlier one."""
    found: list[str | None] = []
    for cause in diagnosis.causes:
        command = diagnosis.command(cause)
        found.append(None if command in found else command)
    return found


def clock(t: float, local: LocalTime) -> str:
    """Unix time as the clock of the day.

    >>> clock(3600.0, time.gmtime)
    '01:00:00'
    """
    return time.strftime("%H:%M:%S", local(t))


_OFF: Mapping[Off | None, str] = {
    "breaker": "; nothing is drafted by then: the breaker is open",
    "mode": "; nothing is drafted by then: the engine runs target-only",
    "k": "; nothing is drafted by then: k is 0",
}


def describe_look(looked: Looked, local: LocalTime = time.localtime) -> str:
    """What the judgement rests on, and of when: cohorts are recorded once a minute, so that less
    may have been looked at than was asked for."""
    over = f"from {clock(looked.start, local)} to {clock(looked.end, local)}"
    if looked.since_start:
        over = f"in the {format_duration(looked.end - looked.start)} since its start"
    accepted = "–" if looked.acceptance is None else percent(looked.acceptance)
    brought = "–" if looked.output_from_drafts is None else percent(looked.output_from_drafts)
    step = "–" if looked.seconds_per_step is None else f"{looked.seconds_per_step * 1e3:.1f} ms"
    return (
        f"{looked.requests} requests {over}: {brought} of the output from drafts, "
        f"accepted {accepted}, a step {step}{_OFF.get(looked.off, '')}"
    )


def describe_baseline(diagnosis: Diagnosis, local: LocalTime = time.localtime) -> str | None:
    """What it is compared with, and what acceptance did since; None without a baseline."""
    looked, moved = diagnosis.looked, diagnosis.moved
    if looked.baseline is None or looked.baseline_end is None:
        return None
    source = {"life": "its life before", "file": "the saved baseline"}.get(
        looked.baseline, "the black box"
    )
    text = f"against {source}, until {clock(looked.baseline_end, local)}"
    if moved is None:
        return text
    parts = f"{_points(moved.mix)} by the mix of requests, {_points(moved.cohorts)} by cohorts"
    shares = f"{percent(moved.before)} → {percent(moved.after)} of the output from drafts"
    return f"{text}: {shares} ({parts})"


def _points(share: float) -> str:
    return f"{share * 100:+.0f}"
