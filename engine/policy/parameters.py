"""What an operator may set of a policy, and the reason when it makes no sense."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from specdeck.engine.policy.ranges import flag_field, number_field, ranges, whole_field, word_field

_T = TypeVar("_T")


class ParameterError(ValueError):
    """A parameter out of range, of the wrong type, unknown, or at odds with another."""


def parameters(cls: type[_T], given: Mapping[str, Any], base: _T | None = None) -> _T:
    """`cls` with the values `given`, the others as in `base` or by default.

    Raises ParameterError and changes nothing when a name or a value makes no sense.

    >>> parameters(Threshold, {"min_draft_length": 3}).min_draft_length
    3
    >>> parameters(Threshold, {"min_length": 3})
    Traceback (most recent call last):
    specdeck.engine.policy.parameters.ParameterError: no parameter 'min_length': there are \
draft_acceptance_threshold, fallback_after_low_acceptance, initial_draft_length, \
max_draft_length, min_draft_length
    """
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # every caller is a dataclass
    for name in given:
        if name not in names:
            raise ParameterError(f"no parameter {name!r}: there are {', '.join(sorted(names))}")
    held = {name: getattr(base, name) for name in names} if base is not None else {}
    return cls(**{**held, **given})


def whole(name: str, value: object, low: float, high: float | None = None) -> None:
    """ParameterError unless `value` is an integer of `low` to `high`.

    >>> whole("k", 2.5, 0)
    Traceback (most recent call last):
    specdeck.engine.policy.parameters.ParameterError: k=2.5 is not a whole number
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ParameterError(f"{name}={value!r} is not a whole number")
    _within(name, value, low, high)


def number(name: str, value: object, low: float, high: float | None = None) -> None:
    """ParameterError unless `value` is a finite number of `low` to `high`.

    >>> number("floor", 1.2, 0, 1)
    Traceback (most recent call last):
    specdeck.engine.policy.parameters.ParameterError: floor=1.2 is not between 0 and 1
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        raise ParameterError(f"{name}={value!r} is not a number")
    _within(name, value, low, high)


def word(name: str, value: object, choices: tuple[str, ...]) -> None:
    """ParameterError unless `value` is one of `choices`."""
    if value not in choices:
        raise ParameterError(f"{name}={value!r} is none of {', '.join(choices)}")


def flag(name: str, value: object) -> None:
    """ParameterError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise ParameterError(f"{name}={value!r} is neither true nor false")


def ordered(low_name: str, low: float, high_name: str, high: float) -> None:
    """ParameterError when `low` is more than `high`.

    >>> ordered("min_draft_length", 8, "max_draft_length", 4)
    Traceback (most recent call last):
    specdeck.engine.policy.parameters.ParameterError: min_draft_length=8 is more than \
max_draft_length=4
    """
    if low > high:
        raise ParameterError(f"{low_name}={low} is more than {high_name}={high}")


def _within(name: str, value: float, low: float, high: float | None) -> None:
    if high is None and value < low:
        raise ParameterError(f"{name}={value} is less than {low}")
    if high is not None and not low <= value <= high:
        raise ParameterError(f"{name}={value} is not between {low} and {high}")


def _within_ranges(block: Any) -> None:
    for name, allowed in ranges(type(block)).items():
        value = getattr(block, name)
        if value is None and allowed.optional:
            continue
        if allowed.kind == "flag":
            flag(name, value)
        elif allowed.kind == "word":
            word(name, value, allowed.choices)
        elif allowed.kind == "whole":
            whole(name, value, allowed.low, allowed.high)
        else:
            number(name, value, allowed.low, allowed.high)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The `threshold` policy: poor rounds shorten the draft, good ones lengthen it."""

    min_draft_length: int = whole_field(
        2, 1, doc="The smallest k; above k_max it is taken as k_max."
    )
    max_draft_length: int = whole_field(
        16, 1, doc="The largest k; above k_max it is taken as k_max."
    )
    draft_acceptance_threshold: float = number_field(
        0.6, 0, 1, doc="A round whose accepted / drafted is below it is poor."
    )
    fallback_after_low_acceptance: int = whole_field(
        3, 1, doc="Poor rounds in a row after which k falls to 75 %."
    )
    initial_draft_length: int = whole_field(
        6, 1, doc="The first k; above k_max it is taken as k_max."
    )

    def __post_init__(self) -> None:
        _within_ranges(self)
        ordered(
            "min_draft_length", self.min_draft_length, "max_draft_length", self.max_draft_length
        )


@dataclass(frozen=True, slots=True)
class Goodput:
    """The `goodput` policy: the k of most committed tokens per second."""

    min_draft_length: int = whole_field(
        0, 0, doc="The smallest k it may choose; 0 lets it choose target-only."
    )
    max_draft_length: int | None = whole_field(
        None, 1, optional=True, doc="The largest k; none is k_max."
    )
    margin: float = number_field(
        0.015, 0, 0.5, doc="The least expected gain for which k moves, as a share."
    )
    confidence: float = number_field(
        1.0, 0, 5, doc="Standard errors by which a gain must exceed the margin."
    )
    dwell_s: float = number_field(
        0.25, 0, 60, doc="Seconds that a k stays at one batch size before the next change."
    )
    explore: float = number_field(
        0.01, 0, 0.2, doc="The share of the output that trying other k's may cost."
    )
    probe_steps: int = whole_field(8, 3, 64, doc="Steps that one try lasts.")
    baseline_s: float = number_field(
        5.0, 0.5, 600, doc="Seconds of work between measurements of target-only."
    )
    memory_steps: int = whole_field(
        400,
        50,
        100_000,
        doc="Steps after which an observed acceptance has lost most of it.",
    )

    def __post_init__(self) -> None:
        _within_ranges(self)
        if self.max_draft_length is not None:
            ordered(
                "min_draft_length", self.min_draft_length, "max_draft_length", self.max_draft_length
            )


AUTOMATIC = ("policy", "always", "never")
"""When the breaker opens by itself: while a policy chooses k, with a fixed k as well, or not."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """When speculation is bypassed, and how it comes back."""

    automatic: str = word_field(
        "policy",
        AUTOMATIC,
        doc="When it opens by itself: while a policy chooses k, always, or never.",
    )
    window_s: float = number_field(1.0, 0.1, 3600, doc="Seconds of work that one verdict rests on.")
    windows: int = whole_field(
        3, 1, 1000, doc="Poor windows in a row that open it (fallback_after_low_acceptance)."
    )
    acceptance_floor: float | None = number_field(
        0.2,
        0,
        1,
        optional=True,
        doc="A window whose accepted / drafted is below it is poor, unless speculation is measured "
        "to pay all the same (draft_acceptance_threshold); none leaves acceptance out.",
    )
    loss: float = number_field(
        0.03, 0, 1, doc="A window that loses more than this share against target-only is poor."
    )
    gain: float = number_field(
        0.03, -1, 10, doc="What a probe must gain against target-only for the breaker to close."
    )
    good_probes: int = whole_field(
        2,
        1,
        1000,
        doc="Bursts of 6 speculating steps it takes at least to close from half-open; one alone "
        "does not show its noise, so it is never enough.",
    )
    share: float = number_field(
        0.1,
        0.01,
        0.5,
        doc="The share of steps that speculate while it is half-open; more do where that is cheap, "
        "all where it seems to pay.",
    )
    cooldown_s: float = number_field(
        2.0,
        0.1,
        86400,
        doc="Seconds open before the first probe; doubled by probes that fail, while they cost.",
    )
    cooldown_max_s: float = number_field(8.0, 0.1, 86400, doc="The longest time between probes.")
    probe_cost: float = number_field(
        0.02,
        0.0001,
        1,
        doc="The share of the time that probes may lose: cheaper ones are not put off for longer.",
    )
    repetition: float = number_field(
        0.97, 0, 1, doc="Acceptance above which a stream is likely to repeat itself."
    )
    repetition_windows: int = whole_field(
        10, 1, 100_000, doc="Windows in a row above it that raise the alarm."
    )

    def __post_init__(self) -> None:
        _within_ranges(self)
        if self.acceptance_floor is not None:
            ordered("acceptance_floor", self.acceptance_floor, "repetition", self.repetition)
        ordered("cooldown_s", self.cooldown_s, "cooldown_max_s", self.cooldown_max_s)
        if self.gain < -self.loss:
            raise ParameterError(
                f"gain={self.gain} is below -loss={-self.loss}: it would close on what opens it"
            )


@dataclass(frozen=True, slots=True)
class Trial:
    """A change on trial: how long it is watched and what keeps it."""

    baseline_s: float = number_field(
        20.0, 0.5, 3600, doc="Seconds of work that are measured before the change."
    )
    seconds: float = number_field(
        60.0, 0.5, 86400, doc="Seconds of work that are measured after it."
    )
    block_s: float = number_field(1.0, 0.05, 60, doc="Seconds of work of one measurement.")
    settle_s: float = number_field(
        1.0, 0, 600, doc="Seconds of work after the change that are not counted."
    )
    confidence: float = number_field(0.95, 0.5, 0.999, doc="Of the intervals.")
    keep_inconclusive: bool = flag_field(
        False, doc="Keeps a change that is neither better nor worse; otherwise it is taken back."
    )

    def __post_init__(self) -> None:
        _within_ranges(self)
        for name, value in (("baseline_s", self.baseline_s), ("seconds", self.seconds)):
            if value < 5 * self.block_s:
                raise ParameterError(
                    f"{name}={value} holds fewer than 5 blocks of block_s={self.block_s}"
                )

    def lasting(self, seconds: float) -> Trial:
        """The same, measured for `seconds` after the change, with blocks that fit into it.

        >>> short = Trial().lasting(5.0)
        >>> short.seconds, short.baseline_s, short.block_s
        (5.0, 5.0, 0.5)
        """
        baseline = min(self.baseline_s, max(seconds, 0.5))
        block = max(0.05, min(self.block_s, seconds / 10, baseline / 10))
        return replace(
            self,
            seconds=seconds,
            baseline_s=baseline,
            block_s=block,
            settle_s=min(self.settle_s, seconds / 10),
        )
