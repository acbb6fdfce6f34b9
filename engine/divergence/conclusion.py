"""What a check comes to: that by which its exit code goes, and so do its reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from specdeck.engine.divergence import verdict
from specdeck.engine.divergence.canary import Canary
from specdeck.engine.errors import SpecdeckError

Judge = Literal["verdict", "canary"]
"""Whose word it is: the check's own, or that of one night among many."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The last word on a check, in the words of a verdict."""

    by: Judge
    word: verdict.Word
    reason: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Of a check's document; one without a conclusion, as stored checks are, goes by its
        verdict."""
        found = data.get("conclusion")
        return cls("verdict", data["verdict"], data["reason"]) if found is None else cls(**found)

    def as_json(self) -> dict[str, Any]:
        """The value of `conclusion` in `check --json`."""
        return asdict(self)


def conclude_check(found: verdict.Verdict) -> Conclusion:
    """Of a check that stands for itself."""
    return Conclusion("verdict", found.word, found.reason)


def conclude_night(
    found: verdict.Verdict, canary: Canary, *, strict: bool, past_error: SpecdeckError | None = None
) -> Conclusion:
    """Of one night of a canary: it is good unless something changed, a defect is proven,
    speculation was not tried, or the nights before it are not known for a `past_error`. With
    `strict` it is not good either while it is too early to tell.

    The verdict by rate weighs nothing here: an engine that has always differed is as before.

    >>> often = verdict.Verdict("fail", "3.00% differ")
    >>> conclude_night(often, Canary(30), strict=True).word
    'pass'
    >>> conclude_night(often, Canary(30, since=29), strict=False).word
    'fail'
    >>> conclude_night(often, Canary(3), strict=True).word
    'inconclusive'
    >>> conclude_night(often, Canary(1), strict=False, past_error=SpecdeckError("damaged")).reason
    'earlier nights are not known: damaged'
    """
    said = canary.line()
    if not is_sound(found):
        if canary.word == "changed":
            return Conclusion("canary", "fail", f"{found.reason}; {said}")
        word: verdict.Word = "inconclusive" if found.word == "pass" else found.word
        return Conclusion("canary", word, found.reason)
    if canary.word == "changed":
        return Conclusion("canary", "fail", said)
    if past_error is not None:  # what changed before it would not be seen
        reason = f"earlier nights are not known: {past_error.line()}"
        return Conclusion("canary", "inconclusive", reason)
    if canary.word == "too early" and strict:
        return Conclusion("canary", "inconclusive", said)
    return Conclusion("canary", "pass", said)


def is_sound(found: verdict.Verdict) -> bool:
    """Whether a check is a night like any other: no defect, and speculation was tried."""
    return not found.defect and not found.untried
