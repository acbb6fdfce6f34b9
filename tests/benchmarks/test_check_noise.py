"""The rows of the noisy engine's table, and the noise that each is told to have."""

from math import log

import pytest
from benchmarks.check_noise import FLOORS, PILOT, WIDE, Row, every_row, find_size, format_rows
from tests.support.planted_noise import KINDS


def test_every_kind_is_measured_at_every_floor_honest_and_with_a_defect() -> None:
    names = [row.name for row in every_row()]
    assert len(set(names)) == len(names)
    assert PILOT not in names
    for floor in FLOORS:
        for kind in KINDS:
            for defect in (False, True):
                assert Row(kind, floor, 8, defect).name in names
    assert not any(row.kind == "batch" and row.streams == 1 for row in every_row())


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_is_told_from_how_often_much_noise_turns_a_token_round(floor: float) -> None:
    per_size = -log(1 - 0.23) / WIDE
    assert find_size(WIDE, 0.23, floor) == pytest.approx(-log(1 - floor) / per_size)
    assert find_size(WIDE, 0.23, 0.23) == pytest.approx(WIDE)
    assert 0 < find_size(WIDE, 0.0, floor) < 100 * WIDE


def test_a_row_that_is_not_measured_stands_in_the_table_without_figures() -> None:
    lines = format_rows({}).splitlines()
    assert len(lines) == 2 + len(list(every_row()))
    assert lines[2].startswith("| repeat 5%, 8 streams: honest | – |")
