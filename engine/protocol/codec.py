"""What another process wrote, to plain values, and plain values to records of known types.

Nothing of it is trusted: whatever the text is, the outcome is a value or a ValueError that says
what was expected where. The standard library only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_T = TypeVar("_T")

DEEPEST = 64
"""Lists and objects within each other; the deepest fact of an engine lies 8 deep."""
MOST_VALUES = 250_000
"""Values in one text: each takes up to 120 bytes once it is read. The ring of an engine's steps,
the largest answer of a plugin, has a third of it."""
_LONGEST_NUMBER = 40
"""Digits; a seed has 20."""
_LARGEST_WHOLE = 2**53
_LARGEST = 1e18
"""Of a number in a record: it can still be multiplied into other units."""

K_MOST = 256
"""The most tokens a round that is believed: eight times what any drafter of vLLM's proposes."""


class NotJson(ValueError):
    """The text is not JSON, or no JSON that anybody means well with."""


class WrongType(ValueError):
    """A value is not what its place takes; the message names the place."""


def loads(data: bytes | str, *, most_values: int = MOST_VALUES) -> Any:
    """The value that `data` spells: UTF-8, whatever a header says.

    Half a surrogate pair becomes U+FFFD, as no output could encode it. Raises NotJson, and
    nothing else, for anything else: NaN and infinities, which are not JSON; numbers of absurd
    length; nesting deeper than DEEPEST; more than `most_values` values.

    >>> loads(b'{"k": [1, 2.5]}'), loads(r'"\\ud83d\\ude80 \\ud83d"') == "\\U0001f680 \\ufffd"
    ({'k': [1, 2.5]}, True)
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotJson("it is not UTF-8") from None
    containers = text.count("[") + text.count("{")
    if containers + text.count(",") > most_values:
        raise NotJson(f"it has more than {most_values} values")
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    if containers > DEEPEST:
        _refuse_depth(value)
    escaped = "\\ud" in text or "\\uD" in text
    return _mend(value) if escaped or (data is text and _HALF.search(text)) else value


def read_object(text: str) -> dict[str, Any]:
    """The JSON object that specdeck itself wrote; raises ValueError where it is damaged.

    >>> read_object('{"k": 3}')
    {'k': 3}
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("a document in it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("a document in it is no JSON object")
    return found


_TOO_DEEP = f"it is nested deeper than {DEEPEST} levels"
_HALF = re.compile(r"[\ud800-\udfff]")


def _read_whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise NotJson(f"a number has {len(digits)} digits")
    return int(digits)


def _read_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson("a number is too large")
    return number


def _refuse_constant(word: str) -> float:
    raise NotJson(f"{word} is not JSON")


_DECODER = json.JSONDecoder(
    parse_int=_read_whole, parse_float=_read_number, parse_constant=_refuse_constant
)


def _refuse_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        within = (one.values() if isinstance(one, dict) else one for one in level)
        level = [each for one in within for each in one if isinstance(each, dict | list)]
        if not level:
            return
    raise NotJson(_TOO_DEEP)


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return mend_text(value)
    if isinstance(value, list):
        return [_mend(one) for one in value]
    if isinstance(value, dict):
        return {mend_text(key): _mend(one) for key, one in value.items()}
    return value


def mend_text(text: str) -> str:
    """`text` as it can be encoded: halves of surrogate pairs replaced.

    >>> mend_text("a\\udcffb") == "a\\ufffdb"
    True
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


Check = Callable[[Any, str], None]
"""A value of the right type and its place; raises WrongType where it will not do."""


@dataclass(frozen=True, slots=True)
class Within:
    """The range of a number, both ends included: the check of an annotated type."""

    low: float
    high: float

    def __call__(self, value: Any, place: str) -> None:
        """Raises WrongType for a number out of range."""
        if not self.low <= value <= self.high:
            raise WrongType(f"{place} is not between {self.low:g} and {self.high:g}")


@dataclass(frozen=True, slots=True)
class OneOf:
    """The words that a reader can tell apart: the check of a Literal, which
    is any text without it."""

    words: tuple[str, ...]

    def __call__(self, value: Any, place: str) -> None:
        """Raises WrongType for another word."""
        if value not in self.words:
            raise WrongType(f"{place} is none of {', '.join(self.words)}")


UnixTime = Annotated[float, Within(0.0, 1e11)]
"""Seconds; a calendar knows every one of them."""
DraftLength = Annotated[int, Within(0, K_MOST)]
"""A k."""
Count = Annotated[int, Within(0, _LARGEST_WHOLE)]
"""Of requests, steps or tokens."""

_Read = Callable[[Any, str], Any]
"""A value and its place, to the value as its type; raises WrongType."""


def read_record(cls: type[_T], data: object, place: str = "") -> _T:
    """A `cls`, dataclass or named tuple, from the keys of `data` that it knows.

    A newer plugin may say more, and words that are not known here. Records within it are read
    alike. Raises WrongType for a key that is missing, or of another type.

    >>> @dataclass
    ... class Point:
    ...     x: float
    ...     name: str | None = None
    >>> read_record(Point, {"x": 1, "z": 2})
    Point(x=1, name=None)
    >>> read_record(Point, {"x": "1"})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    WrongType: x is a text, not a number
    """
    if not isinstance(data, Mapping):
        raise _wrong(place or "it", data, "an object")
    kind: Any = cls
    readers, needed = _record_readers(kind)
    missing = [_join(place, name) for name in needed if name not in data]
    if missing:
        raise WrongType(f"no {', '.join(missing)}")
    return cls(
        **{
            name: read(data[name], _join(place, name))
            for name, read in readers.items()
            if name in data
        }
    )


def read_value(hint: Any, value: object, place: str) -> Any:
    """`value` as the type `hint`; raises WrongType.

    >>> read_value(tuple[int, ...], [1, 2.0], "steps"), read_value(float | None, None, "t")
    ((1, 2), None)
    """
    return _reader(hint)(value, place)


@cache
def _record_readers(cls: type) -> tuple[dict[str, _Read], tuple[str, ...]]:
    """How each key of a record is read, and the keys that it cannot be without."""
    hints = get_type_hints(cls, include_extras=True)
    if is_dataclass(cls):
        own = {
            field.name: field.default is MISSING and field.default_factory is MISSING
            for field in fields(cls)
            if field.init
        }
    else:
        defaults: Mapping[str, object] = getattr(cls, "_field_defaults", {})
        names: Iterable[str] = getattr(cls, "_fields", ())
        own = {name: name not in defaults for name in names}
    readers = {name: _reader(hints[name]) for name in own}
    return readers, tuple(name for name, is_needed in own.items() if is_needed)


@cache
def _reader(hint: Any) -> _Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return lambda value, place: value
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        return _with_check(_reader(arguments[0]), arguments[1])
    if origin is Union or origin is UnionType:
        return _any_of(arguments)
    if origin is Literal:
        return _text  # another word, of somebody newer, is read as it is
    if origin is tuple:
        return _tuple(arguments)
    if origin is list:
        read = _reader(arguments[0])
        return lambda value, place: [read(one, place) for one in _list(value, place)]
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader(arguments[1]))
    return lambda value, place: (
        value if isinstance(value, hint) else read_record(hint, value, place)
    )


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise _wrong(place, value, "a text")
    return value


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(place, value, "true or false")
    return value


def _whole(value: Any, place: str) -> int:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole:
        raise _wrong(place, value, "a whole number")
    if abs(value) > _LARGEST_WHOLE:
        raise WrongType(f"{place} is too large a number")
    return int(value)


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(place, value, "a number")
    if not abs(value) <= _LARGEST:  # neither is NaN
        raise WrongType(f"{place} is too large a number")
    return value


def _nothing(value: Any, place: str) -> None:
    if value is not None:
        raise _wrong(place, value, "null")


_PLAIN: dict[Any, _Read] = {
    str: _text, bool: _flag, int: _whole, float: _number, NoneType: _nothing
}  # fmt: skip


def _with_check(read: _Read, check: Check) -> _Read:
    def read_and_check(value: Any, place: str) -> Any:
        found = read(value, place)
        check(found, place)
        return found

    return read_and_check


def _any_of(hints: tuple[Any, ...]) -> _Read:
    optional = NoneType in hints
    readers = [_reader(hint) for hint in hints if hint is not NoneType]

    def read_any(value: Any, place: str) -> Any:
        if value is None and optional:
            return None
        for read in readers[:-1]:
            try:
                return read(value, place)
            except WrongType:
                continue
        return readers[-1](value, place)

    return read_any


def _tuple(hints: tuple[Any, ...]) -> _Read:
    if hints[-1] is Ellipsis:
        read = _reader(hints[0])
        return lambda value, place: tuple(read(one, place) for one in _list(value, place))
    readers = [_reader(hint) for hint in hints]

    def read_fixed(value: Any, place: str) -> tuple[Any, ...]:
        found = _list(value, place)
        if len(found) != len(readers):
            raise WrongType(f"{place} is not a list of {len(readers)}")
        return tuple(read(one, place) for read, one in zip(readers, found, strict=True))

    return read_fixed


def _mapping(read: _Read) -> _Read:
    def read_mapping(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(place, value, "an object")
        return {_text(key, place): read(one, f"{place}.{key}") for key, one in value.items()}

    return read_mapping


def _list(value: Any, place: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(place or "it", value, "a list")
    return value


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _wrong(place: str, value: object, expected: str) -> WrongType:
    """The value itself is not repeated: it is foreign, and may be anything."""
    return WrongType(f"{place} is {_WORDS.get(type(value), 'something else')}, not {expected}")


_WORDS: dict[type, str] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number",
    NoneType: "null", list: "a list", tuple: "a list", dict: "an object",
}  # fmt: skip
