"""Two answers to one request: where they part, and what kind of parting it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from specdeck.engine.divergence.answer import Answer, Candidate
from specdeck.engine.divergence.resolution import agreed
from specdeck.engine.divergence.structure import Change, changes

Class = Literal["near_tie", "material", "structural", "stream_only"]
CLASSES: tuple[Class, ...] = ("near_tie", "material", "structural", "stream_only")


@dataclass(frozen=True, slots=True)
class Recheck:
    """The serving arm's tokens, fed through the target in one pass."""

    gap: float | None
    """By how much the target prefers its own token to the serving arm's, log-probability."""
    rank: int | None
    """Of the serving arm's token in the target's eyes; 1 is the argmax."""
    worst: float | None
    """The largest gap of any of the serving arm's tokens up to the divergence."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place at which two answers differ."""

    index: int
    """Of the token, from 0."""
    serving_token: int | None
    """None where the answer has ended."""
    reference_token: int | None
    serving_top: tuple[Candidate, ...]
    reference_top: tuple[Candidate, ...]
    margin_serving: float | None
    """By how much the arm prefers its own token to the other's, log-probability.

    Top-1 minus top-2 where, as is usual, the other arm took the second. Negative where the
    arm's own figures do not favour what it said.
    """
    margin_reference: float | None
    bounded: bool
    """Whether a margin is only a lower bound: the other's token was not among the candidates."""
    structure: tuple[Change, ...] = ()
    stream_only: bool = False
    in_both: bool = False
    """Whether each arm streams otherwise than it tells whole: its server does that, no draft."""
    recheck: Recheck | None = None

    @property
    def streamed_alone(self) -> bool:
        """Whether this arm streams otherwise than it tells whole, and the other does not."""
        return self.stream_only and not self.in_both

    def kind(self, near_tie: float) -> Class:
        """The class, where margins up to `near_tie` may be noise."""
        if self.stream_only:
            return "stream_only"
        if not self.tied(near_tie):
            return "material"
        return "structural" if self.structure else "near_tie"

    def tied(self, near_tie: float) -> bool:
        """Whether noise may have chosen between the two tokens."""
        margins = (self.margin_serving, self.margin_reference)
        known = [abs(margin) for margin in margins if margin is not None]
        if len(known) == 2 and not self.bounded and max(known) <= near_tie:
            return True
        # A third look decides: whoever generates one token at a time agrees or does not.
        gap = None if self.recheck is None else self.recheck.gap
        return gap is not None and gap <= near_tie

    def as_json(self, *, private: bool = False) -> dict[str, Any]:
        """Plain values; without anything that was said when `private`."""
        data = asdict(self)
        data["structure"] = [change.as_json() for change in self.structure]
        if private:
            for name in ("serving_token", "reference_token"):
                data[name] = None
            for name in ("serving_top", "reference_top"):
                data[name] = []
            data["structure"] = [
                {**change, "path": _depth(change["path"]), "reference": None, "serving": None}
                for change in data["structure"]
            ]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Divergence:
        """What `as_json` gave."""
        recheck = data.get("recheck")
        return cls(
            **{
                **data,
                "serving_top": tuple((int(i), float(p)) for i, p in data["serving_top"]),
                "reference_top": tuple((int(i), float(p)) for i, p in data["reference_top"]),
                "structure": tuple(Change(**change) for change in data["structure"]),
                "recheck": Recheck(**recheck) if recheck else None,
            }
        )


def _depth(path: str) -> str:
    """A path without the names in it, which an answer may have made up.

    >>> _depth("$"), _depth("limit"), _depth("calls[1].limit")
    ('depth 0', 'depth 1', 'depth 3')
    """
    return f"depth {0 if path == '$' else len(re.split('[.[]', path))}"


def divergence(serving: Answer, reference: Answer) -> Divergence | None:
    """Where `serving` leaves `reference`; None when they are the same, token for token."""
    index = agreed(serving.token_ids, reference.token_ids)
    ours, theirs = _at(serving, index), _at(reference, index)
    if ours is None and theirs is None:
        return _untold(serving, reference, index)
    mine, bound_mine = _preference(serving, index, theirs)
    yours, bound_yours = _preference(reference, index, ours)
    return Divergence(
        index=index,
        serving_token=ours,
        reference_token=theirs,
        serving_top=serving.tops[index] if ours is not None else (),
        reference_top=reference.tops[index] if theirs is not None else (),
        margin_serving=mine,
        margin_reference=yours,
        bounded=bound_mine or bound_yours,
        structure=changes(reference, serving),
    )


def of_streams(
    serving: tuple[Answer, Answer], reference: tuple[Answer, Answer]
) -> tuple[Divergence | None, Divergence | None]:
    """Where each arm leaves itself; of an arm come the streamed answer and the whole one."""
    found = divergence(*serving), divergence(*reference)
    both = _retold(*serving) and _retold(*reference)
    ours, theirs = (
        replace(one, in_both=both) if one is not None and one.stream_only else one for one in found
    )
    return ours, theirs


def _untold(serving: Answer, reference: Answer, index: int) -> Divergence | None:
    """Equal tokens that were told as different text or other calls: one arm was streamed.

    A call that was cut short by max_tokens is told in parts or not at all, as it comes.
    """
    called = bool(serving.calls or reference.calls)
    if called and "length" in (serving.finish, reference.finish):
        return None
    if not _retold(serving, reference):
        return None
    return Divergence(
        index, None, None, (), (), None, None, False, changes(reference, serving), stream_only=True
    )


def _retold(one: Answer, other: Answer) -> bool:
    """Whether the same tokens became other text or calls."""
    if one.token_ids != other.token_ids:
        return False
    same = one.text == other.text and not changes(other, one)
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
        return answer.margin(index), False
    if other in listed:
        return own - listed[other], False
    return own - min(listed.values()), True
