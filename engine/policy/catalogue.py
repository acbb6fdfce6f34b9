"""Every parameter under one roof, by dotted name: what a config gave, what was set since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from specdeck.engine.control.tuning import Parameter, Value
from specdeck.engine.policy.parameters import (
    Breaker,
    Goodput,
    ParameterError,
    Threshold,
    Trial,
    parameters,
)
from specdeck.engine.policy.ranges import ranges

BLOCKS: dict[str, type[Any]] = {
    "goodput": Goodput,
    "threshold": Threshold,
    "breaker": Breaker,
    "trial": Trial,
}

_SPELLED = {
    "threshold": {each.name: each.name for each in fields(Threshold)},
    # The shortest draft bounds drafting; target-only must stay among goodput's choices.
    "goodput": {"max_draft_length": "max_draft_length"},
    "breaker": {
        "fallback_after_low_acceptance": "windows",
        "draft_acceptance_threshold": "acceptance_floor",
        "breaker": "automatic",
    },
    "trial": {},
}
"""What the keys of the config's `orchestration` are called in each block."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The parameters of every block, in force at one moment."""

    goodput: Goodput = field(default_factory=Goodput)
    threshold: Threshold = field(default_factory=Threshold)
    breaker: Breaker = field(default_factory=Breaker)
    trial: Trial = field(default_factory=Trial)

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

    def listed(self, defaults: Catalogue) -> tuple[Parameter, ...]:
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
    from difflib import get_close_matches

    words = [f"{each}.{own}" for each, cls in BLOCKS.items() for own in ranges(cls)]
    near = get_close_matches(name, words, n=1, cutoff=0.6)
    of = ranges(BLOCKS[block]) if block in BLOCKS else BLOCKS
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(of)}"
    raise ParameterError(f"no parameter {name[:80]!r}: {hint}")


def configured(orchestration: Mapping[str, Any]) -> tuple[Catalogue, dict[str, str]]:
    """What a config's `orchestration` makes of them, and the blocks that it makes no whole of.

    The values at odds with the others are left out, and the reasons are there for whoever
    wants to use the block.

    >>> found, wrong = configured({"max_draft_length": 4, "min_draft_length": 5})
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
