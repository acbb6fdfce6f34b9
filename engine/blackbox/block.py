"""Some minutes of rows in one compressed piece.

Its numbers lie column by column: those of one place in the rows, one after the other. A counter
becomes its first value and the steps from there, in as few bytes as the largest step takes, and a
number that is not whole is held against the one before, bit by bit. Nothing is rounded.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import sub
from typing import Any, Final

from specdeck.engine.blackbox.row import MOST_CHARACTERS, MOST_NUMBERS, Damaged, Row
from specdeck.engine.protocol.codec import loads

MOST_ROWS: Final = 1_024
MOST_WAITING: Final = 2_000_000
"""Bytes of the templates and numbers of the rows of a block, but for its last row: what writes one
folds what has many numbers, or changes its shape all the time, before it has all its rows."""
MOST_CELLS: Final = MOST_WAITING // 8 + 3 * MOST_NUMBERS
"""Numbers in a block; the usual one has 60,000."""
MOST_SIZE: Final = 10 * MOST_CELLS + MOST_WAITING + 3 * MOST_CHARACTERS
"""Bytes of a block before it is compressed: a bomb is not unpacked beyond it."""

_LENGTH: Final = struct.Struct("<I")
_FIRST: Final = struct.Struct("<d")

_SAME, _BITS = 0, 5
_STEPS: Final = {1: "b", 2: "h", 3: "i", 4: "q"}
"""How a column is written: one value for all rows, steps of 1 to 8 bytes, or bits."""


def pack(rows: Sequence[Row]) -> bytes:
    """The block of `rows`, at least one."""
    templates: dict[str, int] = {}
    runs: list[list[int]] = []
    for row in rows:
        template = templates.setdefault(row.template, len(templates))
        if runs and runs[-1][0] == template:
            runs[-1][1] += 1
        else:
            runs.append([template, 1])
    sizes = [0] * len(templates)
    for row in rows:
        sizes[templates[row.template]] = len(row.numbers)
    texts = [template.encode("utf-8") for template in templates]
    header = json.dumps(
        {"lengths": list(map(len, texts)), "sizes": sizes, "runs": runs}, separators=(",", ":")
    ).encode("utf-8")
    parts = [_LENGTH.pack(len(header)), header, *texts]
    for group in _group(rows):
        ways, columns = bytearray(), []
        for column in zip(*(row.numbers for row in group), strict=True):
            way, data = _pack_column(array("d", column))
            ways.append(way)
            columns.append(data)
        parts += (bytes(ways), *columns)
    return zlib.compress(b"".join(parts), 6)


def _group(rows: Sequence[Row]) -> list[list[Row]]:
    """Neighbours that have the same number of numbers."""
    groups: list[list[Row]] = []
    for row in rows:
        if groups and len(groups[-1][0].numbers) == len(row.numbers):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


@dataclass(frozen=True, slots=True)
class _Group:
    """Where the columns of some rows lie in a block."""

    first: int
    """The number of its first row in the block."""
    count: int
    size: int
    """Numbers of a row."""
    ways: bytes
    places: tuple[int, ...]
    """Where each column begins."""


class Block:
    """A block that was read; its columns are unpacked as they are asked for.

    Raises Damaged for what is no block, or for more than any writer puts into one.
    """

    def __init__(self, packed: bytes) -> None:
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(packed, MOST_SIZE)
        except zlib.error as error:
            raise Damaged(str(error)) from None
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise Damaged("a block that is cut short, or too large")
        self._data = data
        try:
            (length,) = _LENGTH.unpack_from(data)
            start = _LENGTH.size + length
            lengths, sizes, self._of_row = _read_header(loads(data[_LENGTH.size : start]))
            ends = list(accumulate(lengths, initial=start))
            self._templates = [data[one:end].decode("utf-8") for one, end in pairwise(ends)]
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"a block without its header: {error}") from None
        self.count = len(self._of_row)
        """Rows in it."""
        self._groups = self._find_groups(ends[-1], sizes)

    def row(self, index: int) -> Row:
        """The row with this number, from 0."""
        return self.rows[index]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All of them, unpacked."""
        found: list[Row] = []
        for group in self._groups:
            columns = [self._column(group, place) for place in range(group.size)]
            found += (
                Row(self._templates[self._of_row[group.first + at]], numbers)
                for at, numbers in enumerate(zip(*columns, strict=True))
            )
        return tuple(found)

    def template(self, index: int) -> str:
        """The template of one row."""
        return self._templates[self._of_row[index]]

    @cached_property
    def times(self) -> tuple[float, ...]:
        """The Unix time of each row."""
        return tuple(self.numbers(0))

    def numbers(self, place: int) -> list[float]:
        """The numbers at one place of every row; 0 where a row has not so many."""
        found: list[float] = []
        for group in self._groups:
            found += self._column(group, place) if place < group.size else [0.0] * group.count
        return found

    def _find_groups(self, start: int, sizes: Sequence[int]) -> tuple[_Group, ...]:
        """Walks over the columns; raises Damaged where they do not fill the block."""
        groups: list[_Group] = []
        first, cells = 0, 0
        row_sizes = [sizes[template] for template in self._of_row]
        while first < self.count:
            size, count = row_sizes[first], 1
            while first + count < self.count and row_sizes[first + count] == size:
                count += 1
            cells += size * count
            ways, start = self._data[start : start + size], start + size
            places = []
            if cells > MOST_CELLS or len(ways) != size:
                raise Damaged("a block without its columns")
            for way in ways:
                places.append(start)
                start += _column_size(way, count)
            groups.append(_Group(first, count, size, ways, tuple(places)))
            first += count
        if start != len(self._data):
            raise Damaged("a block of another length than its columns")
        return tuple(groups)

    def _column(self, group: _Group, place: int) -> Sequence[float]:
        way, start = group.ways[place], group.places[place]
        data = self._data[start : start + _column_size(way, group.count)]
        return _unpack_column(way, data, group.count)


def _read_header(header: Any) -> tuple[list[int], list[int], list[int]]:
    """Lengths of the templates, how many numbers each has, and the template of each row.

    Raises ValueError and its like.
    """
    lengths, sizes, runs = header["lengths"], header["sizes"], header["runs"]
    if not all(type(length) is int and 0 <= length <= MOST_SIZE for length in lengths):
        raise ValueError("no templates")
    if not all(type(size) is int and 1 <= size <= MOST_NUMBERS for size in sizes):
        raise ValueError("no sizes")
    if not 1 <= len(sizes) == len(lengths) <= MOST_ROWS:
        raise ValueError("no sizes")
    of_row: list[int] = []
    for template, count in runs:
        if type(template) is not int or type(count) is not int:
            raise ValueError("no runs")
        if not 0 <= template < len(sizes) or not 1 <= count <= MOST_ROWS - len(of_row):
            raise ValueError("no such runs")
        of_row += [template] * count
    if not of_row:
        raise ValueError("no rows")
    return lengths, sizes, of_row


def _pack_column(column: array[float]) -> tuple[int, bytes]:
    data = _little(column)
    first = data[:8]
    if data == first * len(column):
        return _SAME, first
    try:
        whole = list(map(int, column))
        if _little(array("d", whole)) == data:  # neither a fraction nor a negative zero
            steps = list(map(sub, whole[1:], whole))
            low, high = min(steps), max(steps)
            for way, kind in _STEPS.items():
                size = array(kind).itemsize
                if -(1 << (8 * size - 1)) <= low and high < 1 << (8 * size - 1):
                    return way, first + _to_planes(_little(array(kind, steps)), size)
    except (ValueError, OverflowError):
        pass  # infinite, or too large for steps
    bits = int.from_bytes(data, "little")
    changed = (bits ^ (bits << 64)) & ((1 << (8 * len(data))) - 1)
    return _BITS, _to_planes(changed.to_bytes(len(data), "little"), 8)


def _unpack_column(way: int, data: bytes, count: int) -> Sequence[float]:
    if way == _SAME:
        return _FIRST.unpack(data) * count
    if way == _BITS:
        changed = int.from_bytes(_from_planes(data, 8), "little")
        mask, shift = (1 << (64 * count)) - 1, 64
        while shift < 64 * count:
            changed = (changed ^ (changed << shift)) & mask
            shift *= 2
        return _read_array("d", changed.to_bytes(8 * count, "little"))
    (first,) = _FIRST.unpack(data[:8])
    kind = _STEPS[way]
    steps = _read_array(kind, _from_planes(data[8:], array(kind).itemsize))
    try:
        return list(map(float, accumulate(steps, initial=int(first))))
    except (ValueError, OverflowError):
        raise Damaged("a column of no numbers") from None


def _column_size(way: int, count: int) -> int:
    if way == _SAME:
        return 8
    if way == _BITS:
        return 8 * count
    if way not in _STEPS:
        raise Damaged("a column of an unknown kind")
    return 8 + array(_STEPS[way]).itemsize * (count - 1)


def _to_planes(data: bytes, size: int) -> bytes:
    """The first byte of each number, then the second of each, and so on: like beside like.

    >>> _to_planes(b"a1b2c3", 2), _from_planes(b"abc123", 2)
    (b'abc123', b'a1b2c3')
    """
    return b"".join(data[byte::size] for byte in range(size))


def _from_planes(data: bytes, size: int) -> bytes:
    count = len(data) // size
    planes = bytearray(data)
    for byte in range(size):
        planes[byte::size] = data[byte * count : (byte + 1) * count]
    return bytes(planes)


def _little(numbers: array[Any]) -> bytes:
    """As bytes, the lowest first, on any machine."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _read_array(kind: str, data: bytes) -> array[Any]:
    found: array[Any] = array(kind)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found
