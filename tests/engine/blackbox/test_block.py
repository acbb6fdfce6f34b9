from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.blackbox.block import MOST_SIZE, Block, pack
from specdeck.engine.blackbox.row import Damaged, Row

odd = st.one_of(
    st.floats(allow_nan=True),
    st.integers(-(2**70), 2**70).map(float),
    st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), 2.0**53]),
)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    found: list[Row] = []
    for _ in range(draw(st.integers(1, 4))):
        size, template = draw(st.integers(1, 4)), draw(st.text(max_size=5))
        numbers = st.tuples(
            *[draw(st.sampled_from([odd, st.just(7.0), st.integers(0, 300).map(float)]))] * size
        )
        found += [Row(f"{template}{size}", one) for one in draw(st.lists(numbers, max_size=6))]
    return found or [Row("", (1.0,))]


def as_bits(row: Row) -> tuple[str, bytes]:
    return row.template, struct.pack(f"<{len(row.numbers)}d", *row.numbers)


@given(rows())
def test_every_bit_of_every_number_comes_back(given: list[Row]) -> None:
    block = Block(pack(given))
    assert list(map(as_bits, block.rows)) == list(map(as_bits, given))
    first = struct.pack(f"<{len(given)}d", *block.numbers(0))
    assert first == struct.pack(f"<{len(given)}d", *(row.numbers[0] for row in given))


def test_counters_take_little_room() -> None:
    steady = [Row("{}", tuple(float(n * i) for i in range(60))) for n in range(300)]
    assert len(pack(steady)) < 3_000


@given(rows(), st.data())
def test_damage_is_found_or_gives_rows(given: list[Row], data: st.DataObject) -> None:
    packed = bytearray(zlib.decompress(pack(given)))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(packed), at]))
    with suppress(Damaged):
        assert len(Block(zlib.compress(bytes(packed[:cut]))).rows) <= 1024


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"nothing",
        zlib.compress(b""),
        zlib.compress(bytes(MOST_SIZE + 1)),
        zlib.compress(b"\xff\xff\xff\xff{}"),
        zlib.compress(b"\x02\x00\x00\x00{}"),
        pack([Row("{}", (1.0, 2.0))])[:-3],
    ],
    ids=["empty", "no zlib", "nothing in it", "a bomb", "too long", "no header", "cut"],
)
def test_what_is_no_block_is_refused(packed: bytes) -> None:
    with pytest.raises(Damaged):
        Block(packed)
