"""A reading as the black box stores it: its numbers apart from the shape that they stand in.

From one second to the next the shape of a reading hardly ever changes and its numbers always do.
So a row is a *template*, JSON in which every number is a zero, and the numbers in the order in
which they stand in it. A window is not stored: it is computed anew from the two samples that it
lies between, by the arithmetic that computed it in the first place.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final

from specdeck.engine import errors
from specdeck.engine.errors import EngineError
from specdeck.engine.metrics.reading import Gpu, Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import between
from specdeck.engine.protocol.codec import K_MOST, WrongType, loads, mend_text, read_value
from specdeck.engine.protocol.messages import EngineState

MOST_NUMBERS: Final = 16_384
"""Of a row: those of a page and state of 170 data-parallel ranks are 5,000."""
MOST_CHARACTERS: Final = 262_144
"""Of a template; a plugin's state has at most 256,000 bytes."""
_MOST_BOUNDS: Final = 4_096
_LONGEST_MESSAGE: Final = 2_000
_LARGEST_WHOLE: Final = 2**53
_LATEST: Final = 1e11


def _shape_kind(hint: str) -> type:
    """What tells the shape of a series of a sample."""
    return str if hint.startswith("Histogram") else int if hint.startswith("tuple") else bool


_SERIES: Final = {
    field.name: _shape_kind(str(field.type))
    for field in fields(Sample)
    if field.name not in ("t", "at", "model", "engines")
}
"""The series of a sample: a histogram, numbers by position or one number."""

_ERRORS: Final = {
    one.__name__: one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, EngineError)
}


TOO_FEW_NUMBERS: Final = "a row has too few numbers"


class Damaged(ValueError):
    """What the file has in this place was not written by a black box."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reading, taken apart."""

    template: str
    numbers: tuple[float, ...]
    """The first one is the reading's Unix time."""

    @property
    def t(self) -> float:
        """Unix time of the reading, seconds."""
        return self.numbers[0]


@dataclass(frozen=True, slots=True)
class Places:
    """Where in a row's numbers a chart's figures stand; None is what the row has not got."""

    joined: bool
    """Whether there is a window from the row before to this one."""
    up: bool
    restarted: bool
    clock: str | None
    """Names the monotonic clock of the sample's `at`: that of one boot of one machine."""
    instance: str | None
    """The plugin's name of this life of the engine; None without the plugin."""
    at: int | None = None
    generated: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    drafts: int | None = None
    first: int | None = None
    """Accepted tokens that were the first of their draft."""


def pack_numbers(numbers: Sequence[float]) -> bytes:
    """The numbers of a row, eight bytes each."""
    return struct.pack(f"<{len(numbers)}d", *numbers)


def unpack_numbers(data: object) -> tuple[float, ...]:
    """What `pack_numbers` wrote; raises Damaged for anything else."""
    if not isinstance(data, bytes) or not 8 <= len(data) <= 8 * MOST_NUMBERS or len(data) % 8:
        raise Damaged("a row without numbers")
    return struct.unpack(f"<{len(data) // 8}d", data)


def take_apart(reading: Reading, before: Reading | None, *, clock: str | None = None) -> Row:
    """The row of `reading`, which was taken after `before`, the reading of the row before.

    `clock` names the monotonic clock that it was taken by.

    A window that is not the one between their samples is left out: where a reading was lost, or
    another process took it, no later computation can give that window.
    """
    base = None if before is None else before.sample
    joined = (
        reading.window is not None
        and base is not None
        and reading.sample is not None
        and between(base, reading.sample) == reading.window
    )
    row = _take_apart(reading, clock, joined=joined)
    if len(row.numbers) > MOST_NUMBERS or len(row.template) > MOST_CHARACTERS:
        error = EngineError("the reading is too large to record")
        row = _take_apart(Reading(reading.t, reading.url, error=error), clock, joined=False)
    return row


def _take_apart(reading: Reading, clock: str | None, *, joined: bool) -> Row:
    numbers = [float(reading.t)]
    template = {
        "sample": None if reading.sample is None else _shape_of(reading.sample, numbers),
        "joined": joined,
        "clock": clock,
        "restarted": reading.restarted,
        "error": _error_as_json(reading.error),
        "control_error": _error_as_json(reading.control_error),
        "state": None if reading.state is None else _zero(reading.state, numbers),
        "gpus": _zero(reading.gpus, numbers),
    }
    return Row(json.dumps(template, separators=(",", ":")), tuple(numbers))


def join(row: Row, base: Row | None, url: str) -> Reading:
    """The reading that `row` was made of; `base` is the row before, for its window.

    Raises Damaged for a row that no reading was taken apart to.
    """
    reading = _put_together(row, url)
    if base is None or reading.sample is None or not find_places(row.template).joined:
        return reading
    older = read_sample(base)
    return reading if older is None else replace(reading, window=between(older, reading.sample))


def read_sample(row: Row) -> Sample | None:
    """The sample of a row; None where the engine did not answer. Raises Damaged."""
    template = _read_template(row.template)
    return _sample(template.get("sample"), _Numbers(row.numbers, 1))


def _put_together(row: Row, url: str) -> Reading:
    template, numbers = _read_template(row.template), _Numbers(row.numbers, 1)
    t = row.numbers[0] if row.numbers else math.nan
    if not 0 <= t <= _LATEST:
        raise Damaged("a reading without a time")
    sample = _sample(template.get("sample"), numbers)
    state, gpus = template.get("state"), template.get("gpus")
    try:
        found = Reading(
            t,
            url,
            sample=sample,
            state=None if state is None else EngineState.from_json(_object(_fill(state, numbers))),
            error=_read_error(template.get("error")),
            control_error=_read_error(template.get("control_error")),
            restarted=read_value(bool, template.get("restarted"), "restarted"),
            gpus=None
            if gpus is None
            else read_value(tuple[Gpu, ...], _fill(gpus, numbers), "gpus"),
        )
    except WrongType as error:
        raise Damaged(str(error)) from None
    if (found.error is None) != found.up:
        raise Damaged("a reading that is neither up nor down")
    return found


@lru_cache(maxsize=32)
def find_places(template: str) -> Places:
    """Where the figures of a row with this template stand. Raises Damaged."""
    found = _read_template(template)
    joined, restarted = found.get("joined") is True, found.get("restarted") is True
    shape, clock, state = found.get("sample"), found.get("clock"), found.get("state")
    instance = state.get("instance") if isinstance(state, dict) else None
    names = (
        clock if isinstance(clock, str) else None, instance if isinstance(instance, str) else None
    )  # fmt: skip
    if shape is None:
        return Places(False, False, restarted, *names)
    at: dict[str, int] = {"at": 2}
    index = 3
    for name, series in _list_series(_object(shape)):
        size = _size(series)
        if size:
            at[name] = index
        index += size
    return Places(
        joined, True, restarted, *names,
        at["at"], at.get("generated"), at.get("drafted"), at.get("accepted"), at.get("drafts"),
        at.get("accepted_per_position"),
    )  # fmt: skip


def _list_series(shape: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The series of a sample in the order of their numbers, each with its own shape: true for one
    number, how many there are by position, or the bounds of a histogram."""
    return ((name, one) for name, one in shape.items() if name not in ("engines", "model"))


def _size(series: Any) -> int:
    """How many numbers a series has in a row."""
    if series is True:
        return 1
    if isinstance(series, str):
        return len(_read_bounds(series))
    if type(series) is not int or not 0 <= series <= K_MOST:
        raise Damaged("a series of no known shape")
    return series


def _shape_of(sample: Sample, numbers: list[float]) -> dict[str, Any]:
    """The sample without its numbers, which are added to `numbers`."""
    numbers += (float(sample.t), float(sample.at))
    shape: dict[str, Any] = {"engines": sample.engines}
    if sample.model is not None:
        shape["model"] = mend_text(sample.model)
    for name in _SERIES:
        value = getattr(sample, name)
        if isinstance(value, Histogram):
            shape[name] = _write_bounds(value.bounds)
            numbers += map(float, value.counts)
        elif isinstance(value, tuple):
            shape[name] = len(value)
            numbers += map(float, value)
        elif value is not None:
            shape[name] = True
            numbers.append(float(value))
    return shape


def _sample(shape: Any, numbers: Iterator[float]) -> Sample | None:
    if shape is None:
        return None
    shape = _object(shape)
    engines, model = shape.get("engines"), shape.get("model")
    if type(engines) is not int or not (model is None or isinstance(model, str)):
        raise Damaged("a sample of no engine")
    found: dict[str, Any] = {"t": next(numbers), "at": next(numbers)}
    for name, series in _list_series(shape):
        values = tuple(next(numbers) for _ in range(_size(series)))
        if name not in _SERIES:
            continue  # of a newer specdeck
        if type(series) is not _SERIES[name]:
            raise Damaged(f"{name} of another shape")
        if series is True:
            (found[name],) = values
        else:
            is_histogram = isinstance(series, str)
            found[name] = Histogram(_read_bounds(series), values) if is_histogram else values
    return Sample(model=model, engines=engines, **found)


@lru_cache(maxsize=32)
def _write_bounds(bounds: tuple[float, ...]) -> str:
    """Bounds as text that gives the very same numbers back.

    >>> _read_bounds(_write_bounds((0.1, float("inf"))))
    (0.1, inf)
    """
    return " ".join(float(bound).hex() for bound in bounds)


@lru_cache(maxsize=32)
def _read_bounds(text: Any) -> tuple[float, ...]:
    if not isinstance(text, str) or text.count(" ") >= _MOST_BOUNDS:
        raise Damaged("a histogram without bounds")
    try:
        return tuple(map(float.fromhex, text.split()))
    except (ValueError, OverflowError):
        raise Damaged("a histogram without bounds") from None


def _zero(value: Any, numbers: list[float]) -> Any:
    """`value` as JSON with its numbers zero, which are added to `numbers`; whole ones stay whole.

    Records become objects. Written out for each type: it sees each value of each second.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else mend_text(value)
    if value is None or kind is bool:
        return value
    if kind is int and -_LARGEST_WHOLE <= value <= _LARGEST_WHOLE:
        numbers.append(float(value))
        return 0
    if kind is int or kind is float:
        numbers.append(float(value))
        return 0.0
    if kind is tuple or kind is list:
        return [_zero(one, numbers) for one in value]
    if isinstance(value, Mapping):
        return {mend_text(str(key)): _zero(one, numbers) for key, one in value.items()}
    return {name: _zero(getattr(value, name), numbers) for name in value.__dataclass_fields__}


def _fill(shape: Any, numbers: Iterator[float]) -> Any:
    """`shape` with its numbers put back."""
    kind = type(shape)
    if kind is int:
        number = next(numbers)
        if not abs(number) <= _LARGEST_WHOLE:
            raise Damaged("a whole number that is none")
        return int(number)
    if kind is float:
        return next(numbers)
    if kind is dict:
        return {key: _fill(one, numbers) for key, one in shape.items()}
    if kind is list:
        return [_fill(one, numbers) for one in shape]
    return shape


class _Numbers(Iterator[float]):
    """The numbers of a row, one after the other; raises Damaged where there are no more."""

    def __init__(self, numbers: Sequence[float], first: int) -> None:
        self._rest = iter(numbers[first:])

    def __next__(self) -> float:
        try:
            return next(self._rest)
        except StopIteration:
            raise Damaged(TOO_FEW_NUMBERS) from None


@lru_cache(maxsize=16)
def _read_template(text: str) -> dict[str, Any]:
    if len(text) > MOST_CHARACTERS:
        raise Damaged("too long a row")
    try:
        return _object(loads(text))
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(str(error)) from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Damaged("a row that is no object")
    return value


def _error_as_json(error: EngineError | None) -> list[str | None] | None:
    """The most particular kind of error that is known here, its message and its remedy."""
    if error is None:
        return None
    kinds = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    remedy = error.remedy
    return [
        next(kinds, EngineError.__name__),
        mend_text(str(error)[:_LONGEST_MESSAGE]),
        None if remedy is None else mend_text(remedy[:_LONGEST_MESSAGE]),
    ]


def _read_error(value: Any) -> EngineError | None:
    if value is None:
        return None
    kind, message, remedy = read_value(tuple[str, str, str | None], value, "error")
    return _ERRORS.get(kind, EngineError)(message, remedy=remedy)
