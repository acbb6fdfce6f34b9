"""What an operator may set of a policy, the breaker or trials: ranges, defaults, and refusals.

Each parameter stands once, with its range and its words, in the dataclass of its block; the
`Catalogue` has every block under one roof, by dotted name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from specdeck.engine.protocol.tuning import Parameter, Value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T", bound="DataclassInstance")


class ParameterError(ValueError):
    """A parameter out of range, of the wrong type, unknown, or at odds with another."""


def parameters(cls: type[_T], given: Mapping[str, Any], base: _T | None = None) -> _T:
    """`cls` with the values `given`, the others as in `base` or by default.

    Raises ParameterError and changes nothing when a name or a value makes no sense.

    >>> parameters(ThresholdParameters, {"min_draft_length": 3}).min_draft_length
    3
    >>> parameters(ThresholdParameters, {"min_length": 3})
    Traceback (most recent call last):
    specdeck.engine.policy.parameters.ParameterError: no parameter 'min_length': there are \
draft_acceptance_threshold, fallback_after_low_acceptance, initial_draft_length, \
max_draft_length, min_draft_length
    """
    names = {field.name for field in fields(cls)}
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


def require_order(low_name: str, low: float, high_name: str, high: float) -> None:
    """ParameterError when `low` is more than `high`.

    >>> require_order("min_draft_length", 8, "max_draft_length", 4)
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
        if allowed.kind == "whole":
            whole(name, value, allowed.low, allowed.high)
        elif allowed.kind == "number":
            number(name, value, allowed.low, allowed.high)
        elif allowed.kind == "flag" and not isinstance(value, bool):
            raise ParameterError(f"{name}={value!r} is neither true nor false")
        elif allowed.kind == "word" and value not in allowed.choices:
            raise ParameterError(f"{name}={value!r} is none of {', '.join(allowed.choices)}")


@dataclass(frozen=True, slots=True)
class Range:
    """What one parameter can be."""

    kind: Literal["whole", "number", "flag", "word"]
    low: float = 0.0
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    """Whether it can be None."""
    doc: str = ""


def ranges(cls: type[Any]) -> dict[str, Range]:
    """What each parameter of the dataclass `cls` can be, by name."""
    return {each.name: each.metadata["range"] for each in fields(cls)}


def whole_field(
    default: int | None, low: int, high: int | None = None, *, optional: bool = False, doc: str
) -> Any:
    """An integer of `low` to `high`."""
    return _field(default, Range("whole", low, high, optional=optional, doc=doc))


def number_field(
    default: float | None, low: float, high: float, *, optional: bool = False, doc: str
) -> Any:
    """A number of `low` to `high`."""
    return _field(default, Range("number", low, high, optional=optional, doc=doc))


def word_field(default: str, choices: tuple[str, ...], *, doc: str) -> Any:
    """One of `choices`."""
    return _field(default, Range("word", choices=choices, doc=doc))


def flag_field(default: bool, *, doc: str) -> Any:
    """True or false."""
    return _field(default, Range("flag", doc=doc))


def _field(default: object, allowed: Range) -> Any:
    return field(default=default, metadata={"range": allowed})


@dataclass(frozen=True, slots=True)
class ThresholdParameters:
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
        require_order(
            "min_draft_length", self.min_draft_length, "max_draft_length", self.max_draft_length
        )


@dataclass(frozen=True, slots=True)
class GoodputParameters:
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
    rest_rounds: int | None = whole_field(
        None,
        4,
        100_000,
        optional=True,
        doc="Rounds in a row without an accepted token after which a request drafts nothing for a "
        "while, where the capability request_rest is there; none has every request draft.",
    )

    def __post_init__(self) -> None:
        _within_ranges(self)
        if self.max_draft_length is not None:
            require_order(
                "min_draft_length", self.min_draft_length, "max_draft_length", self.max_draft_length
            )


AUTOMATIC = ("policy", "always", "never")
"""When the breaker opens by itself: while a policy chooses k, with a fixed k as well, or not."""


@dataclass(frozen=True, slots=True)
class BreakerParameters:
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
        0.1,
        0,
        1,
        optional=True,
        doc="A window with fewer accepted tokens per draft is poor, unless speculation is measured "
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
        10, 1, 100_000, doc="Windows in a row above it that trigger the warning."
    )

    def __post_init__(self) -> None:
        _within_ranges(self)
        if self.acceptance_floor is not None:
            require_order("acceptance_floor", self.acceptance_floor, "repetition", self.repetition)
        require_order("cooldown_s", self.cooldown_s, "cooldown_max_s", self.cooldown_max_s)
        if self.gain < -self.loss:
            raise ParameterError(
                f"gain={self.gain} is below -loss={-self.loss}: it would close on what opens it"
            )


@dataclass(frozen=True, slots=True)
class TrialParameters:
    """A change on trial: how long both settings are measured, by turns, and what keeps it."""

    baseline_s: float = number_field(
        40.0, 0.5, 86400, doc="Seconds of work that are measured without the change."
    )
    seconds: float = number_field(
        40.0, 0.5, 86400, doc="Seconds of work that are measured with it, by turns."
    )
    block_s: float = number_field(1.0, 0.05, 60, doc="Least seconds of work between two turns.")
    settle_s: float = number_field(
        0.2, 0, 600, doc="Seconds of work after each turn that are not counted."
    )
    confidence: float = number_field(0.95, 0.5, 0.999, doc="Of the verdict.")
    keep_inconclusive: bool = flag_field(
        False, doc="Keeps a change that is neither better nor worse; otherwise it is reverted."
    )

    def __post_init__(self) -> None:
        _within_ranges(self)
        for name, value in (("baseline_s", self.baseline_s), ("seconds", self.seconds)):
            if value < 5 * self.block_s:
                raise ParameterError(
                    f"{name}={value} holds fewer than 5 blocks of block_s={self.block_s}"
                )

    def lasting(self, seconds: float) -> TrialParameters:
        """The same, with the change measured for `seconds`, and blocks that fit into it.

        >>> short = TrialParameters().lasting(5.0)
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
            settle_s=min(self.settle_s, seconds / 50),
        )


@dataclass(frozen=True, slots=True)
class BaselineParameters:
    """What savings are told against: soft k = 0 or, once measured, no speculation at all."""

    soft_cost: float | None = number_field(
        None,
        -0.5,
        10,
        optional=True,
        doc="What a step at k = 0 takes longer than one of an engine without speculation, as a "
        "share, as `specdeck sweep --hard` measures it; none is not known.",
    )

    def __post_init__(self) -> None:
        _within_ranges(self)


BLOCKS: dict[str, type[Any]] = {
    "goodput": GoodputParameters,
    "threshold": ThresholdParameters,
    "breaker": BreakerParameters,
    "trial": TrialParameters,
    "baseline": BaselineParameters,
}

_SPELLED = {
    "threshold": {each.name: each.name for each in fields(ThresholdParameters)},
    # The shortest draft bounds drafting; target-only must stay among goodput's choices.
    "goodput": {"max_draft_length": "max_draft_length"},
    "breaker": {
        "fallback_after_low_acceptance": "windows",
        "draft_acceptance_threshold": "acceptance_floor",
        "breaker": "automatic",
    },
    "trial": {},
    "baseline": {"soft_cost": "soft_cost"},
}
"""What the keys of the config's `orchestration` are called in each block."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The parameters of every block, in force at one moment."""

    goodput: GoodputParameters = field(default_factory=GoodputParameters)
    threshold: ThresholdParameters = field(default_factory=ThresholdParameters)
    breaker: BreakerParameters = field(default_factory=BreakerParameters)
    trial: TrialParameters = field(default_factory=TrialParameters)
    baseline: BaselineParameters = field(default_factory=BaselineParameters)

    def value(self, name: str) -> Value:
        """What the parameter called `name` is; ParameterError when there is none."""
        block, own = split(name)
        found: Value = getattr(getattr(self, block), own)
        return found

    def with_values(self, given: Mapping[str, Value]) -> Catalogue:
        """The same with `given`, checked whole; raises ParameterError and changes nothing.

        >>> Catalogue().with_values({"goodput.margin": 0.1}).goodput.margin
        0.1
        >>> Catalogue().with_values({"threshold.min_draft_length": 99})
        Traceback (most recent call last):
        specdeck.engine.policy.parameters.ParameterError: threshold: min_draft_length=99 is more \
than max_draft_length=16
        """
        blocks: dict[str, dict[str, Value]] = {}
        for name, value in given.items():
            block, own = split(name)
            blocks.setdefault(block, {})[own] = _unset(block, own, value)
        made = {}
        for block, values in blocks.items():
            try:
                made[block] = parameters(BLOCKS[block], values, getattr(self, block))
            except ParameterError as error:
                raise ParameterError(f"{block}: {error}") from None
        return replace(self, **made)

    def as_list(self, defaults: Catalogue) -> tuple[Parameter, ...]:
        """Every parameter, for a screen that edits them."""
        return tuple(
            Parameter(
                f"{block}.{name}",
                getattr(getattr(self, block), name),
                getattr(getattr(defaults, block), name),
                allowed.kind,
                None if allowed.kind in ("flag", "word") else allowed.low,
                allowed.high,
                allowed.choices,
                allowed.optional,
                allowed.doc,
            )
            for block, cls in BLOCKS.items()
            for name, allowed in ranges(cls).items()
        )


def split(name: str) -> tuple[str, str]:
    """Block and name of a dotted name; ParameterError with the nearest when there is none.

    >>> split("breaker.loss")
    ('breaker', 'loss')
    >>> split("breaker.los")
    Traceback (most recent call last):
    specdeck.engine.policy.parameters.ParameterError: no parameter 'breaker.los': did you mean \
breaker.loss?
    """
    block, _, own = name.partition(".")
    if block in BLOCKS and own in ranges(BLOCKS[block]):
        return block, own

    words = [f"{each}.{own}" for each, cls in BLOCKS.items() for own in ranges(cls)]
    near = get_close_matches(name, words, n=1, cutoff=0.6)
    of = ranges(BLOCKS[block]) if block in BLOCKS else BLOCKS
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(of)}"
    raise ParameterError(f"no parameter {name[:80]!r}: {hint}")


def read_orchestration(orchestration: Mapping[str, Any]) -> tuple[Catalogue, dict[str, str]]:
    """What a config's `orchestration` makes of them, and the blocks that it makes no whole of.

    The values at odds with the others are left out, and the reasons are there for whoever
    wants to use the block.

    >>> found, wrong = read_orchestration({"max_draft_length": 4, "min_draft_length": 5})
    >>> found.goodput.max_draft_length, wrong
    (4, {'threshold': 'min_draft_length=5 is more than max_draft_length=4'})
    """
    found, wrong = Catalogue(), {}
    for block in BLOCKS:
        made, refused = block_of(block, orchestration)
        found = replace(found, **{block: made})
        if refused:
            wrong[block] = ", ".join(refused.values())
    return found, wrong


def block_of(block: str, orchestration: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """What a config's `orchestration` makes of one block, and why not of which of its keys.

    >>> block_of("breaker", {"breaker": "never", "draft_acceptance_threshold": 0.98})[1]
    {'draft_acceptance_threshold': 'acceptance_floor=0.98 is more than repetition=0.97'}
    """
    cls, names = BLOCKS[block], _SPELLED[block]
    given = {key: value for key, value in orchestration.items() if key in names}
    try:
        return parameters(cls, {names[key]: value for key, value in given.items()}), {}
    except ParameterError:
        made, refused = cls(), {}
    for key, value in given.items():
        try:
            made = parameters(cls, {names[key]: value}, made)
        except ParameterError as error:
            refused[key] = str(error)
    return made, refused


def _unset(block: str, own: str, value: Value) -> Value:
    allowed = ranges(BLOCKS[block])[own]
    return None if allowed.optional and value in ("none", None) else value
