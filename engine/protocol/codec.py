"""How replies are read, whichever side is the newer one; the standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T", bound="DataclassInstance")


def read_record(cls: type[_T], data: Mapping[str, Any]) -> _T:
    """`cls` from the keys of `data` that it knows, so that a newer plugin can say more."""
    names = {field.name for field in fields(cls)}
    return cls(**{key: value for key, value in data.items() if key in names})


def read_records(cls: type[_T], found: Iterable[Mapping[str, Any]]) -> tuple[_T, ...]:
    """Each of `found` as a `cls`."""
    return tuple(read_record(cls, one) for one in found)
