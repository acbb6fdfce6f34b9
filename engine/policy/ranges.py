"""What a parameter can be, kept beside its default in the dataclass that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal


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
