"""What an operator may set of a policy, and the reason when it makes no sense."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

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


def whole(name: str, value: object, low: int, high: int | None = None) -> None:
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(f"{name}={value!r} is not a number")
    _within(name, value, low, high)


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


@dataclass(frozen=True, slots=True)
class Threshold:
    """The `threshold` policy: poor rounds shorten the draft, good ones lengthen it."""

    min_draft_length: int = 2
    """The smallest k; above k_max it is taken as k_max."""
    max_draft_length: int = 16
    """The largest k; above k_max it is taken as k_max."""
    draft_acceptance_threshold: float = 0.6
    """A round whose accepted / drafted is below it is poor; 0 to 1."""
    fallback_after_low_acceptance: int = 3
    """Poor rounds in a row after which k falls to 75 %."""
    initial_draft_length: int = 6
    """The first k."""

    def __post_init__(self) -> None:
        whole("min_draft_length", self.min_draft_length, 1)
        whole("max_draft_length", self.max_draft_length, 1)
        number("draft_acceptance_threshold", self.draft_acceptance_threshold, 0, 1)
        whole("fallback_after_low_acceptance", self.fallback_after_low_acceptance, 1)
        whole("initial_draft_length", self.initial_draft_length, 1)
        ordered(
            "min_draft_length", self.min_draft_length, "max_draft_length", self.max_draft_length
        )


@dataclass(frozen=True, slots=True)
class Goodput:
    """The `goodput` policy: the k of most committed tokens per second."""

    min_draft_length: int = 0
    """The smallest k it may choose; 0 lets it choose target-only."""
    max_draft_length: int | None = None
    """The largest k; None is k_max."""
    margin: float = 0.015
    """The least expected gain for which k moves, as a share."""
    confidence: float = 1.0
    """Standard errors by which a gain must exceed the margin."""
    dwell_s: float = 0.25
    """Seconds that a k stays at one batch size before the next change."""
    explore: float = 0.01
    """The share of the output that trying other k's may cost."""
    probe_steps: int = 8
    """Steps that one try lasts."""
    baseline_s: float = 5.0
    """Seconds of work between measurements of target-only."""
    memory_steps: int = 400
    """Steps after which an observed acceptance has lost most of its weight."""

    def __post_init__(self) -> None:
        whole("min_draft_length", self.min_draft_length, 0)
        if self.max_draft_length is not None:
            whole("max_draft_length", self.max_draft_length, 1)
            ordered(
                "min_draft_length", self.min_draft_length, "max_draft_length", self.max_draft_length
            )
        number("margin", self.margin, 0, 0.5)
        number("confidence", self.confidence, 0, 5)
        number("dwell_s", self.dwell_s, 0, 60)
        number("explore", self.explore, 0, 0.2)
        whole("probe_steps", self.probe_steps, 3, 64)
        number("baseline_s", self.baseline_s, 0.5, 600)
        whole("memory_steps", self.memory_steps, 50, 100_000)


@dataclass(frozen=True, slots=True)
class Breaker:
    """When speculation is bypassed, and how it comes back."""

    window_s: float = 1.0
    """Seconds of work that one verdict rests on."""
    windows: int = 3
    """Poor windows in a row that open it (`fallback_after_low_acceptance`)."""
    acceptance_floor: float | None = 0.2
    """A window whose accepted / drafted is below it is poor, unless speculation is measured to
    pay all the same (`draft_acceptance_threshold`); None leaves acceptance out."""
    loss: float = 0.03
    """A window that loses more than this share against target-only is poor."""
    gain: float = 0.03
    """What a probe must gain against target-only for the breaker to close."""
    good_probes: int = 2
    """Bursts of 10 speculating steps that it takes at least to close it from half-open."""
    share: float = 0.1
    """The share of steps that speculate while it is half-open."""
    cooldown_s: float = 2.0
    """Seconds open before the first probe; doubled by every probe that fails, while they cost."""
    cooldown_max_s: float = 8.0
    """The longest time between probes."""
    probe_cost: float = 0.02
    """The share of the time that probes may lose: cheaper ones are not put off for longer."""
    repetition: float = 0.97
    """Acceptance above which a stream is likely to repeat itself."""
    repetition_windows: int = 10
    """Windows in a row above it that raise the alarm."""

    def __post_init__(self) -> None:
        number("window_s", self.window_s, 0.1, 3600)
        whole("windows", self.windows, 1, 1000)
        if self.acceptance_floor is not None:
            number("acceptance_floor", self.acceptance_floor, 0, 1)
            ordered("acceptance_floor", self.acceptance_floor, "repetition", self.repetition)
        number("loss", self.loss, 0, 1)
        number("gain", self.gain, -1, 10)
        whole("good_probes", self.good_probes, 1, 1000)
        number("share", self.share, 0.01, 0.5)
        number("cooldown_s", self.cooldown_s, 0.1, 86400)
        number("cooldown_max_s", self.cooldown_max_s, 0.1, 86400)
        number("probe_cost", self.probe_cost, 0.0001, 1)
        number("repetition", self.repetition, 0, 1)
        whole("repetition_windows", self.repetition_windows, 1, 100_000)
        ordered("cooldown_s", self.cooldown_s, "cooldown_max_s", self.cooldown_max_s)
        if self.gain < -self.loss:
            raise ParameterError(
                f"gain={self.gain} is below -loss={-self.loss}: it would close on what opens it"
            )


@dataclass(frozen=True, slots=True)
class Trial:
    """A change on trial: how long it is watched and what keeps it."""

    baseline_s: float = 20.0
    """Seconds of work that are measured before the change."""
    seconds: float = 60.0
    """Seconds of work that are measured after it."""
    block_s: float = 1.0
    """Seconds of work of one measurement."""
    settle_s: float = 1.0
    """Seconds of work after the change that are not counted."""
    confidence: float = 0.95
    """Of the intervals."""
    keep_inconclusive: bool = False
    """Keeps a change that is neither better nor worse; otherwise it is taken back."""

    def __post_init__(self) -> None:
        number("baseline_s", self.baseline_s, 1, 3600)
        number("seconds", self.seconds, 1, 86400)
        number("block_s", self.block_s, 0.05, 60)
        number("settle_s", self.settle_s, 0, 600)
        number("confidence", self.confidence, 0.5, 0.999)
        flag("keep_inconclusive", self.keep_inconclusive)
        for name, value in (("baseline_s", self.baseline_s), ("seconds", self.seconds)):
            if value < 5 * self.block_s:
                raise ParameterError(
                    f"{name}={value} holds fewer than 5 blocks of block_s={self.block_s}"
                )
