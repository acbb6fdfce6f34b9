"""Two answers to one request: where they part, what kind of parting it is, and in which fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple

from specdeck.engine.divergence.answers import Answer, Call, Candidate
from specdeck.engine.divergence.floors import Flip, group_answers
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.structured import Validity, Violation
from specdeck.engine.protocol.codec import NotJson, loads, read_record
from specdeck.engine.store.checks import Pair

Kind = Literal["value", "type", "key", "invalid", "more"]
"""Another value, another type, a key or item that only one has, JSON that only one can parse,
and how many places more there are than are listed."""
MOST_CHANGES = 100
"""Of one pair of answers, listed; the others are counted."""
LONGEST_PATH = 1_000
"""Characters; a longer one is cut."""
_MISSING = object()
Class = Literal[
    "near_tie", "material", "structural", "stream_only", "unreproduced", "reference_differs",
    "invalid",
]  # fmt: skip
CLASSES: tuple[Class, ...] = (
    "near_tie", "material", "structural", "stream_only", "unreproduced", "reference_differs",
    "invalid",
)  # fmt: skip
CLEAR = 2.0
"""Margins of so many near-tie thresholds, on both arms, are no accident."""


@dataclass(frozen=True, slots=True)
class StructureChange:
    """One place at which the serving arm says something else than the reference."""

    path: str
    kind: Kind
    reference: Any
    """A JSON value; None as well where there is none."""
    serving: Any

    def line(self) -> str:
        """One line for the operator.

        >>> StructureChange("limit", "value", 50, 500).line()
        'limit: 50 → 500'
        """
        if self.kind == "invalid":
            return f"{self.path}: not JSON in one of the arms"
        if self.kind == "more":
            return f"and {self.serving} more places"
        return f"{self.path}: {_format_value(self.reference)} → {_format_value(self.serving)}"


def find_changes(reference: Answer, serving: Answer) -> tuple[StructureChange, ...]:
    """Where tool calls, or answers that are JSON as a whole, differ; none for plain text."""
    if reference.calls or serving.calls:
        return tuple(_list_changes(_calls(reference.calls, serving.calls)))
    before, after = _parse_json(reference.text), _parse_json(serving.text)
    if not isinstance(before, dict | list) and not isinstance(after, dict | list):
        return ()
    if before is _MISSING or after is _MISSING:
        return (StructureChange("$", "invalid", None, None),)
    return tuple(find_json_changes(before, after))


def find_json_changes(before: Any, after: Any) -> Iterator[StructureChange]:
    """The leaves at which two JSON values differ: the first, and how many more there are.

    >>> old, new = {"limit": 50, "q": ["a"]}, {"limit": 500, "q": ["a", "b"]}
    >>> [c.line() for c in find_json_changes(old, new)]
    ['limit: 50 → 500', 'q[1]: – → "b"']
    >>> [c.kind for c in find_json_changes({"n": 1}, {"n": "1"})]
    ['type']
    """
    yield from _list_changes(_walk(before, after, None))


class _Place(NamedTuple):
    """Where a value lies. Most places are of equal values, and are never spelled."""

    above: _Place | None
    part: str | int
    """A key, or the number of an item."""

    def spell(self) -> str:
        parts, at = [], self
        while at.above is not None:
            parts.append(at.part)
            at = at.above
        parts.append(at.part)
        path = ""
        for part in reversed(parts):
            if isinstance(part, int):
                path += f"[{part}]"
            else:
                key = part[: LONGEST_PATH + 1]
                path = f"{path}.{key}" if path else key
        return path if len(path) <= LONGEST_PATH else f"{path[: LONGEST_PATH - 1]}…"


class _Change(NamedTuple):
    place: _Place | None
    kind: Kind
    reference: Any
    serving: Any


def _list_changes(found: Iterator[_Change]) -> Iterator[StructureChange]:
    for place, kind, reference, serving in islice(found, MOST_CHANGES):
        path = place.spell() if place is not None else ""
        yield StructureChange(path or "$", kind, reference, serving)
    if more := sum(1 for _ in found):
        yield StructureChange("$", "more", None, more)


def _walk(before: Any, after: Any, place: _Place | None) -> Iterator[_Change]:
    if before is _MISSING or after is _MISSING:
        yield _Change(place, "key", _value(before), _value(after))
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            old, new = before.get(key, _MISSING), after.get(key, _MISSING)
            yield from _walk(old, new, _Place(place, key))
    elif isinstance(before, list) and isinstance(after, list):
        for n in range(max(len(before), len(after))):
            yield from _walk(_item(before, n), _item(after, n), _Place(place, n))
    elif type(before) is not type(after):
        yield _Change(place, "type", before, after)
    elif before != after:
        yield _Change(place, "value", before, after)


def _calls(before: Sequence[Call], after: Sequence[Call]) -> Iterator[_Change]:
    several = max(len(before), len(after)) > 1
    for n in range(max(len(before), len(after))):
        call = _Place(_Place(None, "calls"), n)
        prefix = call if several else None
        old, new = _item(before, n), _item(after, n)
        if not isinstance(old, Call) or not isinstance(new, Call):
            names = (one.name if isinstance(one, Call) else None for one in (old, new))
            yield _Change(call, "key", *names)
            continue
        if old.name != new.name:
            yield _Change(_Place(prefix, "name"), "value", old.name, new.name)
        yield from _arguments(old.arguments, new.arguments, prefix)


def _arguments(before: str, after: str, prefix: _Place | None) -> Iterator[_Change]:
    if before == after:
        return
    old, new = _parse_json(before), _parse_json(after)
    if old is _MISSING or new is _MISSING:
        yield _Change(_Place(prefix, "arguments"), "invalid", None, None)
    else:
        yield from _walk(old, new, prefix)


def _parse_json(text: str) -> Any:
    try:
        return loads(text)
    except NotJson:
        return _MISSING


def _item(values: Sequence[Any], n: int) -> Any:
    return values[n] if n < len(values) else _MISSING


def _value(value: Any) -> Any:
    return None if value is _MISSING else value


def _format_value(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Recheck:
    """The serving arm's tokens, fed through the target again: what it thinks of them."""

    gap: float | None
    """By how much the target prefers its own token to the serving arm's, log-probability.

    The least of all looks: what does not show in each of them is not reproduced.
    """
    rank: int | None
    """Of the serving arm's token in the target's eyes; 1 is the argmax."""
    worst: float | None
    """The largest gap of any of the serving arm's tokens up to the divergence."""
    looks: tuple[float, ...] = ()
    """The gaps of all looks: in one pass, and one token at a time; empty where there was one."""
    top: tuple[Candidate, ...] = ()
    """The target's likeliest candidates, in the first look."""

    @property
    def most(self) -> float | None:
        """The largest gap of any look."""
        return max(self.looks) if self.looks else self.gap


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place at which two answers differ."""

    index: int
    """Of the token, from 0."""
    serving_token: int | None = None
    """None where the answer has ended, and where answers are private."""
    reference_token: int | None = None
    serving_top: tuple[Candidate, ...] = ()
    reference_top: tuple[Candidate, ...] = ()
    margin_serving: float | None = None
    """By how much the arm prefers its own token to the other's, log-probability.

    Top-1 minus top-2 where, as is usual, the other arm took the second. Negative where the
    arm's own figures do not favour what it said.
    """
    margin_reference: float | None = None
    bounded: bool = False
    """Whether a margin is only a lower bound: the other's token was not among the candidates."""
    structure: tuple[StructureChange, ...] = ()
    stream_only: bool = False
    in_both: bool = False
    """Whether streamed and non-streamed output differ in each arm: no draft has made that."""
    recheck: Recheck | None = None
    violation: Violation | None = None
    """Where the serving arm breaks the prompt's rules, and the reference does not."""
    ended: bool = False
    """Whether one of the answers has ended there."""

    @property
    def streamed_alone(self) -> bool:
        """Whether streamed and non-streamed output differ in this arm and not in the other."""
        return self.stream_only and not self.in_both

    @property
    def breaks_rule(self) -> bool:
        """Whether the serving arm alone breaks what the engine had to enforce."""
        return self.violation is not None and self.violation.enforced

    def kind(self, near_tie: float) -> Class:
        """The class, where margins up to `near_tie` may be noise."""
        if self.breaks_rule or (self.violation is not None and not self.tied(near_tie)):
            return "invalid"
        if self.stream_only:
            return "stream_only"
        if self.tied(near_tie):
            return "structural" if self.structure else "near_tie"
        seen = self.recheck
        if seen is None or seen.gap is None or seen.gap > near_tie:
            return "material"
        if self.is_clear(near_tie) and (self.margin_serving is None or self.margin_serving > 0):
            return "reference_differs"
        if seen.most is not None and seen.most > near_tie:
            return "unreproduced"
        return "structural" if self.structure else "near_tie"

    def tied(self, near_tie: float) -> bool:
        """Whether noise may have chosen between the two tokens, by what both arms say of them."""
        margins = (self.margin_serving, self.margin_reference)
        known = [abs(margin) for margin in margins if margin is not None]
        return len(known) == 2 and not self.bounded and max(known) <= near_tie

    def is_clear(self, near_tie: float) -> bool:
        """Whether by the figures of both arms one of the tokens is better by far.

        An arm may have said the worse one. An ended answer has no say.
        """
        margins = (self.margin_serving, self.margin_reference)
        known = [abs(margin) for margin in margins if margin is not None]
        return len(known) >= (1 if self.ended else 2) and min(known) > CLEAR * near_tie

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Divergence:
        """What `as_json` gave; raises WrongType for anything else."""
        return read_record(cls, data)


@dataclass(frozen=True, slots=True)
class PromptAnswers:
    """The answers to one prompt, judged; of each arm come the whole and the streamed one."""

    prompt: Prompt
    serving: tuple[Answer, ...]
    """The whole and the streamed one, then those asked for as answers differed."""
    reference: tuple[Answer, ...]
    cross: Divergence | None
    """Where the whole answers of the arms part; None where they are the same."""
    streamed: Divergence | None
    """Where the streamed ones part; equal tokens of them do where the serving arm's stream makes of
    them what no answer of the reference's does."""
    serving_twice: Divergence | None
    """Where the serving arm leaves itself."""
    reference_twice: Divergence | None
    looks: tuple[Flip, ...] = ()
    """Of the target, fed the reference's whole answer in one pass; empty where it was not."""
    alone: Answer | None = None
    """The reference's answer with nothing else in the engine; None where it was not asked."""
    validity: Validity | None = None
    """None where the prompt requires no structure that could be judged."""

    @property
    def pairs(self) -> dict[Pair, Divergence | None]:
        """The comparisons, as the store names them."""
        return {
            "cross": self.cross,
            "streamed": self.streamed,
            "reference": self.reference_twice,
            "serving": self.serving_twice,
        }

    @property
    def is_retold(self) -> bool:
        """Whether the serving arm's whole or streamed answer makes another text of equal tokens, or
        another end, than any of the reference's makes of them."""
        if self.streamed is not None and self.streamed.stream_only:
            return True
        if self.cross is None or not self.cross.stream_only:
            return False
        alike = _find_alike(self.serving[0], self.reference)
        whole = [one for one in alike if one is not self.reference[1]]
        return _is_told_otherwise(self.serving[0], alike, ends=whole)

    @property
    def pattern(self) -> str:
        """Which answers are the same, for the floors."""
        reference, serving = (
            [answer.token_ids for answer in arm] for arm in (self.reference, self.serving)
        )
        return group_answers(reference, serving, self.looks)


def common_length(one: Iterable[int], other: Iterable[int]) -> int:
    """How many tokens two answers begin with in common.

    >>> common_length((1, 2, 3), (1, 2, 4)), common_length((1, 2), (1, 2, 3))
    (2, 2)
    """
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def find_divergence(
    serving: Answer, reference: Answer, *, in_parts: bool = True
) -> Divergence | None:
    """Where `serving` leaves `reference`; None when they are the same, token for token.

    `in_parts`: whether one of them was streamed, and a call that was cut short may be told so far.
    """
    index = common_length(serving.token_ids, reference.token_ids)
    ours, theirs = _at(serving, index), _at(reference, index)
    if ours is None and theirs is None:
        return _find_text_divergence(serving, reference, index, in_parts=in_parts)
    mine, bound_mine = _preference(serving, index, theirs)
    yours, bound_yours = _preference(reference, index, ours)
    return Divergence(
        index=index,
        serving_token=ours,
        reference_token=theirs,
        ended=ours is None or theirs is None,
        serving_top=serving.tops[index] if ours is not None else (),
        reference_top=reference.tops[index] if theirs is not None else (),
        margin_serving=mine,
        margin_reference=yours,
        bounded=bound_mine or bound_yours,
        structure=find_changes(reference, serving),
    )


def find_stream_divergences(
    serving: tuple[Answer, Answer], reference: tuple[Answer, Answer]
) -> tuple[Divergence | None, Divergence | None]:
    """Where each arm leaves itself; of an arm come the streamed answer and the whole one.

    What an arm makes of a stream is its own doing only where the other makes another text of the
    same tokens: without those nothing is known, and nothing said.
    """
    found = find_divergence(*serving), find_divergence(*reference)
    both = _has_other_text(*serving) and _has_other_text(*reference)
    streams = serving[0], reference[0]
    alone = _has_other_text(*streams) and not _is_cut_call(*streams)

    def weigh(one: Divergence | None) -> Divergence | None:
        if one is None or not one.stream_only:
            return one
        return replace(one, in_both=both) if both or alone else None

    ours, theirs = map(weigh, found)
    return ours, theirs


def find_retold_stream(streamed: Answer, reference: Sequence[Answer]) -> Divergence | None:
    """Where a stream of the serving arm makes of its tokens another text, or another end, than any
    answer of the `reference` makes of them; None as well where its stream has others."""
    alike = _find_alike(streamed, reference)
    is_known = reference[1].token_ids == streamed.token_ids
    if not is_known or any(_is_cut_call(streamed, one) for one in alike):
        return None
    if not _is_told_otherwise(streamed, alike, ends=alike):
        return None
    index = len(streamed.token_ids)
    return Divergence(index, structure=find_changes(alike[-1], streamed), stream_only=True)


def _find_alike(answer: Answer, others: Iterable[Answer]) -> list[Answer]:
    """Those of the same tokens."""
    return [one for one in others if one.token_ids == answer.token_ids]


def _is_told_otherwise(answer: Answer, alike: Sequence[Answer], *, ends: Sequence[Answer]) -> bool:
    """Whether an answer is another text than any of `alike`, which have its tokens, or has another
    end than any of `ends`, where there are such."""
    if all(_has_other_text(answer, one) for one in alike):
        return True
    return bool(ends) and all(one.finish != answer.finish for one in ends)


def _find_text_divergence(
    serving: Answer, reference: Answer, index: int, *, in_parts: bool
) -> Divergence | None:
    """Equal tokens that were told as different text or other calls, or with another end.

    A server may tell the end of a streamed answer otherwise, in both arms.
    """
    if in_parts and _is_cut_call(serving, reference):
        return None
    other_end = not in_parts and serving.finish != reference.finish
    if not other_end and not _has_other_text(serving, reference):
        return None
    return Divergence(index, structure=find_changes(reference, serving), stream_only=True)


def _is_cut_call(one: Answer, other: Answer) -> bool:
    """Whether max_tokens cut a call short: it is told in parts or not at all, as it comes."""
    return bool(one.calls or other.calls) and "length" in (one.finish, other.finish)


def _has_other_text(one: Answer, other: Answer) -> bool:
    """Whether the same tokens became other text, reasoning or calls."""
    if one.token_ids != other.token_ids:
        return False
    same = (one.text, one.reasoning) == (other.text, other.reasoning)
    same = same and not find_changes(other, one)
    return not same or len(one.calls) != len(other.calls)


def _at(answer: Answer, index: int) -> int | None:
    return answer.token_ids[index] if index < len(answer.token_ids) else None


def _preference(answer: Answer, index: int, other: int | None) -> tuple[float | None, bool]:
    """The margin of an arm's token over the other arm's, and whether it is only a bound."""
    if index >= len(answer.token_ids):
        return None, False
    own, listed = answer.logprobs[index], dict(answer.tops[index])
    if own is None or not listed:
        return None, False
    if other is None:
        return answer.margins()[index], False
    if other in listed:
        return own - listed[other], False
    return own - min(listed.values()), True
