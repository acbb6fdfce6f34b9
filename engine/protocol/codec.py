"""How replies are read, whichever side is the newer one; the standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

_T = TypeVar("_T")


def known(cls: type[_T], data: Mapping[str, Any]) -> _T:
    """`cls` from the keys of `data` that it knows, so that a newer plugin can say more."""
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # every caller is a dataclass
    return cls(**{key: value for key, value in data.items() if key in names})


def every(cls: type[_T], found: Iterable[Mapping[str, Any]]) -> tuple[_T, ...]:
    """Each of `found` as a `cls`."""
    return tuple(known(cls, one) for one in found)
