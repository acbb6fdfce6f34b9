"""A case in sentences: what fell and what did not, and what speaks for the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from specdeck.engine.blackbox.falls import Fall, Silence, name_figure
from specdeck.engine.incident.case import Case, Contrast, Pattern, Side, first_accepted
from specdeck.engine.incident.dips import Dip
from specdeck.engine.incident.figures import Stretch
from specdeck.engine.incident.onset import Onset
from specdeck.engine.incident.slides import Slide
from specdeck.engine.incident.stalls import Stall
from specdeck.engine.text import UNKNOWN, format_count, format_duration
from specdeck.engine.why.cohort_gaps import prompt_order
from specdeck.engine.why.words import describe_group

Clock = Callable[[float], str]

DIMENSIONS: Final[Mapping[str, str]] = {
    "prompt": "prompt tokens", "cached": "prompt cached", "output": "output tokens",
    "adapter": "adapter", "structured": "rules for the output", "temperature": "temperature",
    "pinned": "k of its own", "finish": "finished by",
}  # fmt: skip
_ASPECTS: Final[Mapping[str, str]] = {
    "prompt": "the prompt's length", "cached": "the prefix cache", "adapter": "the adapter",
    "structured": "a rule for the output", "temperature": "sampling", "pinned": "a k of its own",
}  # fmt: skip
_MOST_CONTRASTS: Final = 8
_WHOLE_MINUTES_S: Final = 600.0
"""From which on seconds of a slide say nothing."""
_SAME: Final = 0.15
"""Of a figure: what moved by less, by more than a hundredth of which nothing is made, did not."""
_TITLES: Final[Mapping[Pattern, str]] = {
    "rejected": "the draft fails for {}{}: what it proposes is rejected from the first token on",
    "decayed": "the draft became worse for {}{}, little by little",
    "weaker": "the draft is accepted less for {}{}",
}


def format_share(value: float | None) -> str:
    """A share, whole.

    >>> format_share(0.684), format_share(None)
    ('68%', '–')
    """
    return UNKNOWN if value is None else f"{value:.0%}"


def describe_fall(fall: Fall, onset: Onset | None) -> str:
    """What a figure was and is, and how long its fall took.

    >>> describe_fall(Fall("acceptance", 0.0, 0.68, 0.25), Onset(2.0))
    'acceptance fell from 68% to 25% within 2 s'
    >>> describe_fall(Fall("tokens_per_second", 0.0, 1242.0, 685.0), None)
    'tokens/s fell from 1,242 to 685'
    """
    form = ".0%" if fall.figure == "acceptance" else ",.0f"
    figure = name_figure(fall.figure, is_of_first=fall.is_of_first)
    text = f"{figure} fell from {format(fall.before, form)} to {format(fall.after, form)}"
    return text if onset is None else f"{text} {describe_onset(onset)}"


def describe_slide(slide: Slide) -> str:
    """What a figure was and is, where it did not fall at once.

    >>> describe_slide(Slide("acceptance", 0.0, 3580.0, 0.6, 0.25, is_steady=True))
    'acceptance slid from 60% to 25% over 1 h'
    >>> describe_slide(Slide("tokens_per_second", 0.0, 600.0, 1242.0, 685.0, is_steady=False))
    'tokens/s went up and down and is lower in the end than in the beginning: 685, 1,242 before'
    """
    form = ".0%" if slide.figure == "acceptance" else ",.0f"
    figure = name_figure(slide.figure, is_of_first=slide.is_of_first)
    was, now = format(slide.before, form), format(slide.after, form)
    if not slide.is_steady:
        lower = "went up and down and is lower in the end than in the beginning"
        return f"{figure} {lower}: {now}, {was} before"
    seconds = slide.seconds if slide.seconds < _WHOLE_MINUTES_S else _round_minutes(slide.seconds)
    return f"{figure} slid from {was} to {now} over {format_duration(seconds)}"


def _round_minutes(seconds: float) -> float:
    return 60.0 * round(seconds / 60.0)


_SILENCES: Final[Mapping[Silence, str]] = {
    "unrecorded": "nothing was recorded", "down": "the engine did not answer",
    "unknown": "it was not known",
}  # fmt: skip


def describe_silence(fall: Fall, clock: Clock) -> str:
    """Between which moments a figure fell that was not known meanwhile; empty for any other.

    >>> fall = Fall("acceptance", 90.0, 0.68, 0.25, since=30.0, silence="down")
    >>> describe_silence(fall, lambda t: f"{t:.0f} s")
    ' between 30 s and 90 s, while the engine did not answer'
    """
    if fall.since is None:
        return ""
    words = _SILENCES[fall.silence or "unknown"]
    return f" between {clock(fall.since)} and {clock(fall.t)}, while {words}"


def describe_onset(onset: Onset) -> str:
    """How sudden a fall was.

    >>> describe_onset(Onset(0.0)), describe_onset(Onset(40.0))
    ('at once (within a second)', 'over 40 s')
    """
    if onset.seconds <= 0:
        return "at once (within a second)"
    word = "within" if onset.is_sudden else "over"
    return f"{word} {format_duration(onset.seconds)}"


def describe_dip(dip: Dip) -> str:
    """Acceptance that was lost and came back.

    >>> describe_dip(Dip(0.0, 29.0, 0.92, 0.014))
    'acceptance fell from 92% to 1% for 29 s and came back'
    """
    seconds = format_duration(round(dip.seconds))
    return f"acceptance fell from {dip.before:.0%} to {dip.low:.0%} for {seconds} and came back"


def describe_stall(stall: Stall, clock: Clock) -> str:
    """An engine that stood still.

    >>> describe_stall(Stall(0.0, 50.0, 16, False), lambda t: f"{t:.0f} s")
    'no token for 50 s, until 50 s, while 16 requests ran; the engine core did not answer'
    """
    text = (
        f"no token for {format_duration(round(stall.seconds))}, until {clock(stall.end)}, while"
        f" {format_count(stall.running, 'request')} ran"
    )
    return text if stall.answered else f"{text}; the engine core did not answer"


def name_inside(case: Case) -> str:
    """The requests that a case is about."""
    if case.group.by == "prompt" and case.is_longest:
        return f"prompts of {prompt_order(case.group.words[0])} or more tokens"
    if case.group.by == "prompt" and case.is_shortest:
        longest = case.group.words[-1].rpartition("-")[2]
        return f"prompts of up to {longest} tokens"
    return describe_group(case.group)


def name_outside(case: Case) -> str:
    """All other requests."""
    if case.group.by == "prompt" and case.is_longest:
        return "shorter ones"
    if case.group.by == "prompt" and case.is_shortest:
        return "longer ones"
    return "other requests"


def describe_who(case: Case) -> str:
    """Which requests fell and which did not.

    Empty where too few are known to tell.
    """
    if not case.inside.is_known:
        return ""
    text = f"{name_inside(case)} from {_move(case.inside, ' to ')}"
    if case.outside.held:
        return f"{text}; {name_outside(case)} did not fall ({_move(case.outside)})"
    if case.outside.is_known:
        return f"{text}; {name_outside(case)} {_move(case.outside)}"
    return text


def describe_case(case: Case, clock: Clock) -> str | None:
    """What became of the drafts of whom, and since when; None where that is not known."""
    if case.pattern is None:
        return None
    since = "" if case.since is None else f" since {clock(case.since)}"
    return _TITLES[case.pattern].format(name_inside(case), since)


def list_evidence(case: Case, clock: Clock) -> Iterator[str]:
    """What speaks for a case, a sentence each, the most telling first."""
    inside, outside = name_inside(case), name_outside(case)
    if case.inside.is_known:
        of, was, now = _count_sides(case.inside)
        yield f"of {of} for {inside}{_mean_length(case)} {was} were accepted before, {now} after"
    if case.outside.is_known:
        word = "did not fall" if case.outside.held else "moved as well"
        of, was, now = _count_sides(case.outside)
        words = f"{was} before, {now} after"
        move = case.outside.move
        is_whole = move is None or move.depth is None
        yield f"{outside} {word}: {words}" if is_whole else f"{outside} {word}: of {of} {words}"
    first, first_now = first_accepted(case.inside.before), first_accepted(case.inside.after)
    if first is not None and first_now is not None:
        text = (
            f"of the first token of each draft for {inside} {first:.0%} were accepted before,"
            f" {first_now:.0%} after"
        )
        if case.pattern == "rejected":
            text += ": not a k that is too long, which has the first ones accepted"
        yield text
    if case.onset is not None and case.since is not None:
        text = f"it began at {clock(case.since)} and fell {describe_onset(case.onset)}"
        text += ", by the acceptance of all requests, read every second"
        if case.onset.is_sudden:
            text += ": no drift, which takes minutes or hours"
        yield text
    if case.share_before is not None and case.share_after is not None:
        text = (
            f"{format_share(case.share_before)} of the requests that finished were such before,"
            f" {format_share(case.share_after)} after"
        )
        if abs(case.share_after - case.share_before) < 0.1:
            text += ": not another mix of traffic"
        yield text
    yield from _list_contrasts(case)


def _mean_length(case: Case) -> str:
    """Of prompts that are told apart by their length: a word is as wide as a power of four."""
    sides = [one for one in (case.inside.before, case.inside.after) if one is not None]
    requests = sum(one.requests for one in sides)
    if case.group.by != "prompt" or not requests:
        return ""
    return f" ({sum(one.prompt_tokens for one in sides) / requests:.0f} on average)"


def _list_contrasts(case: Case) -> Iterator[str]:
    """Whether it is this word of a request, and not another that goes along with it."""
    shown: Sequence[Contrast] = sorted(
        case.contrasts, key=lambda one: -(one.inside.after.requests if one.inside.after else 0)
    )[:_MOST_CONTRASTS]
    for by in dict.fromkeys(one.by for one in shown):
        words = [one for one in shown if one.by == by]
        fell = [one for one in words if one.inside.held is False]
        compared = [one for one in fell if one.outside.held]
        if len(fell) < len(words) or not fell:
            continue
        text = f"it is not {_ASPECTS[by]}: {name_inside(case)} fell with " + _list_moves(
            (_name_word(one), one.inside) for one in fell
        )
        if compared:
            text += f"; {name_outside(case)} did not with " + _list_moves(
                (_name_word(one), one.outside) for one in compared
            )
        yield text


def _name_word(contrast: Contrast) -> str:
    """A word of a dimension where it stands alone."""
    form = {"cached": "{} of the prompt cached", "adapter": "adapter {}", "pinned": "own k: {}"}
    return form.get(contrast.by, "{}").format(contrast.word)


def _list_moves(sides: Iterable[tuple[str, Side]]) -> str:
    return ", ".join(f"{word} ({_move(side)})" for word, side in sides)


def list_unchanged(
    before: Stretch, after: Stretch, settings: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """What stayed as it was around the moment, and so is not the cause, with its figures."""
    if (step := _same(before.step_s, after.step_s)) is not None:
        yield f"steps are not slower: {_ms(before.step_s)} before, {_ms(step)} after"
    if (wait := _same(before.ttft_p50_s, after.ttft_p50_s)) is not None:
        text = f"not the computing of prompts: {_ms(before.ttft_p50_s)} to the first token before"
        yield f"{text}, {_ms(wait)} after"
    if before.preemptions == 0 and after.preemptions == 0:
        text = "no request was preempted"
        if after.kv_cache_usage is not None:
            text += f": {format_share(after.kv_cache_usage)} of the KV cache in use"
        yield text
    was, now = before.prefix_hit_rate, after.prefix_hit_rate
    if was is not None and now is not None and now >= was - 0.05:
        yield f"the prefix cache is hit no less than before: {was:.0%} before, {now:.0%} after"
    if (busy := _same(before.running, after.running)) is not None:
        yield f"the load is the same: {before.running:.1f} requests ran before, {busy:.1f} after"
    yield from _list_same_settings(settings)


_ENGINE: Final = ("instance", "model", "method", "vllm", "plugin", "fingerprint")
_KNOBS: Final = ("k", "k_set", "mode", "fallback", "policy", "breaker", "trial")


def _list_same_settings(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    was, now = settings.get("before"), settings.get("after")
    if was is None or now is None:
        return
    if all(was.get(name) == now.get(name) for name in _ENGINE):
        path = now.get("fingerprint")
        yield (
            "the engine is the same: no restart, the same model, method and versions"
            + (f", the same fingerprint of the serving path ({path})" if path else "")
        )
    if all(was.get(name) == now.get(name) for name in _KNOBS):
        words = [f"{name} {now[name]}" for name in _KNOBS if now.get(name) is not None]
        yield f"nothing was set: {', '.join(words)}, before and after"


def _same(before: float | None, after: float | None) -> float | None:
    """What a figure is after, where it is not above what it was by more than a little."""
    if before is None or after is None or after > before * (1 + _SAME):
        return None
    return after


def _move(side: Side, arrow: str = " → ") -> str:
    """How acceptance moved; of what, where it is not of whole drafts."""
    was, now = (None if one is None else one.acceptance for one in (side.before, side.after))
    move = side.move
    if move is None or move.depth is None:
        return f"{format_share(was)}{arrow}{format_share(now)}"
    return f"{format_share(move.before)}{arrow}{format_share(move.after)} of {move.of}"


def _count_sides(side: Side) -> tuple[str, str, str]:
    """Of a side that is known: what its shares are of, and each with its requests."""
    move, before, after = side.move, side.before, side.after
    assert move is not None
    assert before is not None
    assert after is not None
    was, now = (
        f"{format_share(share)} ({format_count(counts.requests, 'request')})"
        for share, counts in ((move.before, before), (move.after, after))
    )
    return move.of, was, now


def _ms(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds * 1e3:.1f} ms"
