"""An engine against a baseline, line by line: as good as before, worse, or not to be told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from specdeck.engine.divergence.baseline import (
    Baseline,
    Block,
    CheckSummary,
    StructureCounts,
)
from specdeck.engine.divergence.doubts import Doubt
from specdeck.engine.divergence.floors import SIGNIFICANT
from specdeck.engine.divergence.statistics import Rate, above
from specdeck.engine.divergence.verdict import IDLE, Word
from specdeck.engine.fingerprint.compare import compare, leaves
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.metrics.draft_length import count_positions
from specdeck.engine.special_functions import special_functions
from specdeck.engine.text import format_count, format_percent

CONFIDENCE = 0.95
"""One-sided."""
_FEWEST = 3
"""Blocks whose spread says anything."""
_SAME_K = 0.03
"""Drafts that are shorter by no more than that are of the same k."""
_TRACE = 0.5
"""Tokens that a block without any stands for: fewer than any other has."""
_MOST_LOG = 700.0
"""Beyond it a ratio is no number that a computer has."""
_SAME_LENGTH = 0.9
"""Of the tokens of a block's answers, or the inverse: texts that differ end sooner or later by
chance, in blocks of several by less on average."""
_MODELS = ("model.target.", "model.tokenizer.")
"""Facts without which answers are another model's."""
_SAME_MODEL = 0.5
"""Of the answers, those that are the baseline's where one model gave both: an upgrade moves some of
them, another model nearly all."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be lost, as shares of the baseline's."""

    speed: float = 0.10
    acceptance: float = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was compared."""

    name: str
    word: Word
    said: str
    before: float | None = None
    after: float | None = None
    ci95: tuple[float, float] | None = None
    """Of after over before: one-sided bounds of 95 % each."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "ci95": None if self.ci95 is None else list(self.ci95)}


@dataclass(frozen=True, slots=True)
class Gate:
    """An engine as it stands to a baseline."""

    baseline: Baseline
    now: Baseline
    lines: tuple[Line, ...]
    against: str | None
    """The engine that was measured in turn with it; None where the baseline's own figures serve."""
    changed: tuple[str, ...]
    """Facts of the fingerprint that moved, a line each."""

    @property
    def word(self) -> Word:
        """The worst of all lines."""
        words = {line.word for line in self.lines}
        return "fail" if "fail" in words else "inconclusive" if "inconclusive" in words else "pass"

    @property
    def reason(self) -> str:
        """What is worse, or not to be told."""
        bad = [line for line in self.lines if line.word == self.word]
        if self.word == "pass":
            return "nothing is worse than in the baseline"
        return "; ".join(f"{line.name}: {line.said}" for line in bad)

    def as_json(self) -> dict[str, Any]:
        """Every key always there, null when unknown."""
        return {
            "verdict": self.word,
            "reason": self.reason,
            "engine": self.now.engine,
            "baseline": {"engine": self.baseline.engine, "t": self.baseline.t},
            "against": self.against,
            "t": self.now.t,
            "workload": asdict(self.now.workload),
            "lines": [line.as_json() for line in self.lines],
            "changed": list(self.changed),
            "check": asdict(self.now.check),
        }


def compare_with_baseline(
    before: Baseline,
    now: Baseline,
    limits: Limits,
    *,
    against: str | None = None,
    paired: Sequence[Block] | None = None,
    doubts: Sequence[Doubt] = (),
) -> Gate:
    """Every line; `paired` are the blocks of the engine `against`, measured in turn with these.

    `doubts` are of either measurement: with one of them nothing passes.
    """
    name, changed = _compare_fingerprints(before, now)
    lines = (
        _divergence(before.check, now.check),
        _structure(before.check.structured, now.check.structured),
        _acceptance(before.blocks, now.blocks, limits.acceptance),
        _speed(paired or before.blocks, now.blocks, limits.speed, interleaved=paired is not None),
        name,
        _answers(before, now),
        *_measurement(doubts),
    )
    return Gate(before, now, lines, against, changed)


def _divergence(before: CheckSummary, now: CheckSummary) -> Line:
    said = f"{now.reason} ({format_percent(before.mismatch_rate)} differed before)"
    return Line("divergence", now.verdict, said, before.mismatch_rate, now.mismatch_rate)


def _structure(before: StructureCounts, now: StructureCounts) -> Line:
    if not now.prompts and before.prompts:
        none = f"none of the {format_count(before.prompts, 'prompt')} that require one is answered"
        return Line("structure", "inconclusive", none)
    if not now.prompts:
        return Line("structure", "pass", "no prompt requires one")
    said = (
        f"{now.invalid} invalid where the reference is valid, of"
        f" {format_count(now.prompts, 'prompt')}; serving {now.serving_invalid},"
        f" {before.serving_invalid} before"
    )
    # What a target may break as it likes, it breaks more often or less by close calls alone.
    p = above(Rate(now.serving_invalid, now.prompts), Rate(before.serving_invalid, before.prompts))
    is_worse = now.invalid or (p is not None and p <= SIGNIFICANT)
    word: Word = "fail" if is_worse else "pass"
    return Line("structure", word, said, before.serving_invalid, now.serving_invalid)


def _acceptance(before: Sequence[Block], now: Sequence[Block], limit: float) -> Line:
    name = "acceptance"
    if (others := _find_others(before, now, "the baseline's engine")) is not None:
        return Line(name, "inconclusive", f"not told: {others}")
    before, now = _leave_out_shared(before, now)
    for blocks, whose in ((before, "the baseline's engine"), (now, "the engine")):
        if not any(_tells_drafts(block) for block in blocks):
            return Line(name, "inconclusive", f"{whose} does not say what it drafted")
    if not all(_is_drafted(blocks) for blocks in (before, now)):
        if any(_is_drafted(blocks) for blocks in (before, now)):
            was, is_now = ("drafts" if _is_drafted(b) else "no drafts" for b in (before, now))
            return Line(name, "fail", f"{was} before, {is_now} now")
        return Line(name, "inconclusive", "neither engine says that it drafted")
    pairs = tuple(_pairs(before, now))
    if (gap := _find_idle_blocks(pairs)) is not None:
        word, why = gap
        return Line(name, word, why)
    old, new = _length(before), _length(now)
    rates = " → ".join(format_percent(_rate(blocks)) for blocks in (before, now))
    said = f"{old:.2f} → {new:.2f} tokens a round ({rates} of drafts)"
    drafted = [pair for pair in pairs if all(_is_drafted([one]) for one in pair)]
    ratios = [_length([b]) / _length([a]) for a, b in drafted]
    judged = _judge(name, said, ratios, limit, old, new)
    find_doubt = {"fail": _find_shorter_drafts, "pass": _find_worse_longer_drafts}.get(judged.word)
    if find_doubt is not None and (doubt := find_doubt(drafted, limit)) is not None:
        return replace(judged, word="inconclusive", said=f"{judged.said}: {doubt}")
    untold = sum(not all(map(_tells_drafts, pair)) for pair in pairs)
    if judged.word != "pass" or untold <= IDLE * len(pairs):
        return judged
    # Metrics may well be away in those blocks alone in which something else is wrong.
    why = f"what was drafted is not known in {untold} of {len(pairs)} blocks"
    return Line(name, "inconclusive", f"{said}: {why}", old, new)


def _find_shorter_drafts(pairs: Sequence[tuple[Block, Block]], limit: float) -> str | None:
    """Why fewer tokens a round are no fault of the drafts: they were shorter, and no less of each
    was accepted. None where they are.

    Of the same drafts a larger share is accepted the shorter they are, as each token needs those
    before it: a share that fell by more than the `limit` as well is worse at any k.
    """
    known = [(a, b) for a, b in pairs if a.drafts and a.drafted and b.drafts and b.drafted]
    before, now = [a for a, _ in known], [b for _, b in known]
    was, k = _drafted_length(before), _drafted_length(now)
    old, new = _rate(before), _rate(now)
    if not (old and new and k < (1 - _SAME_K) * was):
        return None
    shares = [(_rate([b]) or 0.0) / rate for a, b in known if (rate := _rate([a]))]
    if _judge("acceptance", "", shares, limit, old, new).word == "fail":
        return None
    return f"{was:.1f} tokens were drafted a round, and {k:.1f} now: the same k tells more"


def _find_worse_longer_drafts(pairs: Sequence[tuple[Block, Block]], limit: float) -> str | None:
    """Why as many tokens a round are no proof of as good drafts: they were longer, and surely fewer
    were accepted in the places that drafts had before. None where they are.

    Rounds of long drafts begin at hard places more often, as they skip more of the easy ones: a
    little is lost of the first places by an honest k as well, so this is no failure.
    """
    known = [(a, b) for a, b in pairs if a.drafts and a.drafted and b.drafts and b.drafted]
    was, k = (_drafted_length([pair[n] for pair in known]) for n in (0, 1))
    if not k > (1 + _SAME_K) * was:
        return None
    longer = f"{was:.1f} tokens were drafted a round, and {k:.1f} now"
    places = count_positions(was)
    sides = [[_length_of_first(pair[n], places) for pair in known] for n in (0, 1)]
    if any(length is None for side in sides for length in side):
        whose = "the baseline" if None in sides[0] else "the engine"
        return (
            f"{longer}, and {whose} does not say which of them were accepted: the same k tells more"
        )
    old, new = ([length for length in side if length is not None] for side in sides)
    ratios = [b / a for a, b in zip(old, new, strict=True)]
    mean, mean_now = (sum(side) / len(side) for side in (old, new))
    if _judge("acceptance", "", ratios, limit, mean, mean_now).word != "fail":
        return None
    of = "first of them" if places == 1 else f"first {places}"
    return f"{longer}; the {of} brought {mean:.2f} and bring {mean_now:.2f}: the same k tells more"


def _length_of_first(block: Block, places: int) -> float | None:
    """Tokens that a round commits on average of the first places of its draft, the bonus token
    included; None where that is not told."""
    accepted = block.accepted_per_position
    if not block.drafts or accepted is None or len(accepted) < places:
        return None
    return 1 + sum(accepted[:places]) / block.drafts


def _find_idle_blocks(pairs: Sequence[tuple[Block, Block]]) -> tuple[Word, str] | None:
    """What blocks in which one engine drafted and the other did not allow to say of acceptance.

    No ratio is of them, and where they are many it is none of the engine as it serves. None where
    they are few.
    """
    told = [pair for pair in pairs if all(map(_tells_drafts, pair))]
    sides: tuple[tuple[int, int, Word, str], ...] = (
        (1, 0, "fail", "now"), (0, 1, "inconclusive", "before"),
    )  # fmt: skip
    for mine, other, word, when in sides:
        drafted = [pair for pair in told if pair[other].drafts]
        idle = sum(not pair[mine].drafts for pair in drafted)
        if idle > IDLE * len(drafted):
            whose = "the baseline's engine" if other == 0 else "the engine"
            of = f"{idle} of {len(drafted)} blocks in which {whose} drafts"
            return word, f"no drafts {when} in {of}"
    return None


def _find_others(before: Sequence[Block], now: Sequence[Block], other: str) -> str | None:
    """Which engine, the `other` or this one, served others in so many blocks that their figures are
    not of the prompts alone; None where they are few."""
    for blocks, whose in ((before, other), (now, "the engine")):
        shared = sum(block.is_shared for block in blocks)
        if shared > IDLE * len(blocks):
            return f"{whose} served others in {shared} of {len(blocks)} blocks"
    return None


def _leave_out_shared(
    before: Sequence[Block], now: Sequence[Block]
) -> tuple[Sequence[Block], Sequence[Block]]:
    """The blocks without those that either engine shared with others."""
    shared = {n for n, pair in enumerate(_pairs(before, now)) if any(one.is_shared for one in pair)}
    left = [[block for n, block in enumerate(side) if n not in shared] for side in (before, now)]
    return left[0], left[1]


def _tells_drafts(block: Block) -> bool:
    """Whether it is known how much was drafted and accepted, be it nothing."""
    return block.drafts == 0 or None not in (block.drafts, block.accepted)


def _is_drafted(blocks: Sequence[Block]) -> bool:
    return any(block.drafts for block in blocks if _tells_drafts(block))


def _length(blocks: Sequence[Block]) -> float:
    """Tokens that a round commits on average, the bonus token included."""
    told = [block for block in blocks if _tells_drafts(block)]
    drafts = sum(block.drafts or 0.0 for block in told)
    return 1 + sum(block.accepted or 0.0 for block in told) / drafts


def _drafted_length(blocks: Sequence[Block]) -> float:
    """Tokens that a draft has on average; 0 of none."""
    drafts = sum(block.drafts or 0.0 for block in blocks)
    return sum(block.drafted or 0.0 for block in blocks) / drafts if drafts else 0.0


def _rate(blocks: Sequence[Block]) -> float | None:
    told = [block for block in blocks if None not in (block.drafted, block.accepted)]
    drafted = sum(block.drafted or 0.0 for block in told)
    return sum(block.accepted or 0.0 for block in told) / drafted if drafted else None


def _speed(
    before: Sequence[Block], now: Sequence[Block], limit: float, *, interleaved: bool
) -> Line:
    other = "the engine compared with" if interleaved else "the baseline's engine"
    if (others := _find_others(before, now, other)) is None:
        before, now = _leave_out_shared(before, now)
    old, new = _tokens_per_second(before), _tokens_per_second(now)
    how = "measured in turn" if interleaved else "against figures of another time"
    said = f"{old:.0f} → {new:.0f} tokens/s, {how}"
    pairs = tuple(_pairs(before, now))
    told = [(a, b) for a, b in pairs if a.tokens]
    name, empty = "tokens/s", len(pairs) - len(told)
    if others is not None:
        return Line(name, "inconclusive", f"{said}: not told: {others}", old, new)
    if empty > IDLE * len(pairs):
        why = f"nothing to compare with in {empty} of {len(pairs)} blocks: no token was generated"
        return Line(name, "inconclusive", f"{said}: {why}", old, new)
    # A block without a token is a loss like any other, and has a logarithm with a trace of one.
    ratios = [_per_second(b.tokens or _TRACE, [b]) / _tokens_per_second([a]) for a, b in told]
    return _judge(name, said, ratios, limit, old, new)


def _tokens_per_second(blocks: Sequence[Block]) -> float:
    return _per_second(sum(block.tokens for block in blocks), blocks)


def _per_second(tokens: float, blocks: Sequence[Block]) -> float:
    return tokens / max(sum(block.seconds for block in blocks), 1e-9)


def _pairs(before: Sequence[Block], now: Sequence[Block]) -> Iterator[tuple[Block, Block]]:
    return zip(before, now, strict=False)


def _judge(
    name: str, said: str, ratios: Iterable[float], limit: float, before: float, after: float
) -> Line:
    """Fails where the ratio is surely below what may be lost, and passes where surely not."""
    known = tuple(ratios)
    if not all(map(math.isfinite, (before, after, *known))) or not all(known):
        return _line_of_nonsense(name, said, before, after)
    logs = [math.log(ratio) for ratio in known]
    if len(logs) < _FEWEST:
        return Line(name, "inconclusive", f"{said}: too few blocks to tell", before, after)
    bounds = mean_bounds(logs)
    if max(map(abs, bounds)) > _MOST_LOG:
        return _line_of_nonsense(name, said, before, after)
    low, high = map(math.exp, bounds)
    shown = f"{said}: {low:.3f} to {high:.3f} of the baseline (95 %), {1 - limit:g} is required"
    word: Word = "inconclusive"
    if low >= 1 - limit:
        word = "pass"
    elif high < 1 - limit:
        word = "fail"
    return Line(name, word, shown, before, after, (low, high))


def _line_of_nonsense(name: str, said: str, before: float, after: float) -> Line:
    """That of figures that no engine has, such as a thousand tokens in no time."""
    old, new = (figure if math.isfinite(figure) else None for figure in (before, after))
    return Line(name, "inconclusive", f"{said}: no figures of an engine", old, new)


def mean_bounds(values: Sequence[float]) -> tuple[float, float]:
    """One-sided bounds of the mean, each with 95 % confidence, by Student's distribution.

    >>> [round(bound, 3) for bound in mean_bounds([1.0, 2.0, 3.0])]
    [0.314, 3.686]
    """
    count = len(values)
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    reach = float(special_functions().stdtrit(count - 1, CONFIDENCE)) * math.sqrt(variance / count)
    return mean - reach, mean + reach


def _compare_fingerprints(before: Baseline, now: Baseline) -> tuple[Line, tuple[str, ...]]:
    old, new = before.read_fingerprint(), now.read_fingerprint()
    if old is None or new is None:
        whose = "the baseline" if old is None else "the engine"
        return Line("fingerprint", "inconclusive", f"{whose} has none"), ()
    found = compare(old, new)
    changed = tuple(one.line() for one in found.differences)
    other = [one.fact for one in found.differences if one.fact.startswith(_MODELS)]
    if other:
        return Line("fingerprint", "fail", f"another model: {', '.join(other)}"), changed
    said = "; ".join(found.lines())
    for seen, whose in ((old, "the baseline's"), (new, "the engine's")):
        share = _share_of_others(before.answers, now.answers)
        if not _knows_model(seen) and (share is None or share > 1 - _SAME_MODEL):
            why = f"{whose} model is not known, and most answers are not the baseline's"
            return Line("fingerprint", "inconclusive", f"{why}; {said}"), changed
    return Line("fingerprint", "pass", said), changed


def _knows_model(seen: Fingerprint) -> bool:
    """Whether every fact of the target model and its tokenizer is known."""
    known = [place for place, _ in leaves(seen.facts)]
    unread = [f"{place.strip()}." for one in seen.unread for place in one.fact.split(",")]
    return all(
        any(place.startswith(branch) for place in known)
        and not any(place.startswith(branch) or branch.startswith(place) for place in unread)
        for branch in _MODELS
    )


def _answers(before: Baseline, now: Baseline) -> Line:
    """Whether the prompts are still answered, and at such length.

    Another answer is no fault by itself, but one cut short is not the work that was asked for.
    """
    share, common = _share_of_others(before.answers, now.answers), before.answers.keys()
    if missing := len(common - now.answers.keys()):
        of = format_count(len(common), "prompt")
        said = f"{missing} of {of} that the baseline's engine answered are refused now"
        return Line("answers", "fail", said, after=share)
    if share is None:
        return Line("answers", "pass", "no prompt in common with the baseline")
    said = f"{round(share * len(common))} of {len(common)} differ from the baseline"
    if (lengths := _find_other_lengths(before.blocks, now.blocks)) is not None:
        return Line("answers", "inconclusive", f"{said}, and {lengths}", after=share)
    return Line("answers", "pass", f"{said}, which is no fault by itself", after=share)


def _find_other_lengths(before: Sequence[Block], now: Sequence[Block]) -> str | None:
    """How answers are surely shorter or longer by more than `_SAME_LENGTH`: an engine that caps
    them, or misses their end, does other work. None where they are not, or nothing is sure."""
    pairs = [(a.tokens, b.tokens) for a, b in _pairs(before, now) if a.tokens and b.tokens]
    if len(pairs) < _FEWEST:
        return None
    low, high = mean_bounds([math.log(b / a) for a, b in pairs])
    if low <= -math.log(_SAME_LENGTH) and high >= math.log(_SAME_LENGTH):
        return None
    old, new = (sum(pair[side] for pair in pairs) for side in (0, 1))
    return f"they have {new} tokens where they had {old}: that is other work"


def _measurement(doubts: Sequence[Doubt]) -> Iterator[Line]:
    """A line where the figures are no evidence."""
    if doubts:
        yield Line("measurement", "inconclusive", "; ".join(one.line for one in doubts))


def _share_of_others(before: Mapping[str, str], now: Mapping[str, str]) -> float | None:
    """Of the prompts that both answered, those with another answer; None without any."""
    common = before.keys() & now.keys()
    return sum(before[one] != now[one] for one in common) / len(common) if common else None
