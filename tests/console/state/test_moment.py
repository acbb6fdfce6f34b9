"""Moments as somebody writes them."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.console.state.moment import format_moment, parse_moment
from specdeck.engine.errors import UsageError

NOON = 1_795_262_400.0
"""Saturday, 2026-11-21 12:00:00 UTC."""


def at(text: str, now: float = NOON) -> str:
    found = parse_moment(text, now, time.gmtime)
    return "now" if found is None else time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "now"), (" now ", "now"),
        ("-2m", "2026-11-21 11:58:00"), ("-20m", "2026-11-21 11:40:00"),
        ("2m", "2026-11-21 11:58:00"), ("90s ago", "2026-11-21 11:58:30"),
        ("-1h30m", "2026-11-21 10:30:00"), ("-1.5h", "2026-11-21 10:30:00"),
        ("- 5 min", "2026-11-21 11:55:00"), ("-2d", "2026-11-19 12:00:00"),
        ("03:10", "2026-11-21 03:10:00"), ("3:10:07", "2026-11-21 03:10:07"),
        ("12:00", "2026-11-21 12:00:00"), ("12:00:01", "2026-11-20 12:00:01"),
        ("yesterday 23:00", "2026-11-20 23:00:00"), ("Yesterday  23:00", "2026-11-20 23:00:00"),
        ("today 03:10", "2026-11-21 03:10:00"),
        ("sat 11:00", "2026-11-21 11:00:00"), ("saturday 13:00", "2026-11-14 13:00:00"),
        ("thu 09:15", "2026-11-19 09:15:00"),
        ("2026-11-20 03:10", "2026-11-20 03:10:00"), ("2026-11-20t03:10", "2026-11-20 03:10:00"),
        ("11-20 03:10", "2026-11-20 03:10:00"), ("12-24 18:00", "2025-12-24 18:00:00"),
    ],
)  # fmt: skip
def test_what_an_operator_writes_is_a_moment(text: str, wanted: str) -> None:
    assert at(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "soon", "25:00", "12:60", "12:00:99", "-", "--2m", "-2", "2026-13-01 00:00", "2 m 3",
        "2026-02-30 00:00", "02-29 10:00", "someday 03:10", "03:10 03:10", "x" * 5000, "-2y",
        "0000-01-01 00:00", "-2m\x1b[2J",
    ],
)  # fmt: skip
def test_what_is_no_moment_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        at(text)
    assert "03:10, -20m" in (refused.value.remedy or "")
    assert len(str(refused.value)) < 100
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("text", ["today 13:00", "2026-11-22 00:00"])
def test_a_moment_to_come_is_refused_as_one(text: str) -> None:
    with pytest.raises(UsageError, match="still to come"):
        at(text)


def zone(offset: Callable[[float], float]) -> Callable[[float], time.struct_time]:
    """A calendar with an offset of its own, in seconds."""
    return lambda t: time.gmtime(t + offset(t))


TURN = float(calendar.timegm((2026, 10, 25, 1, 0, 0)))
"""When clocks in central Europe go back from 03:00 to 02:00."""


@given(
    now=st.integers(1_000_000_000, 2_000_000_000).map(float),
    back=st.integers(0, 86_399),
    hours=st.integers(-11, 13),
)
def test_a_time_of_day_is_the_latest_one_in_any_zone(now: float, back: int, hours: int) -> None:
    local = zone(lambda t: hours * 3600.0)
    wanted = now - back
    assert parse_moment(time.strftime("%H:%M:%S", local(wanted)), now, local) == wanted


@given(back=st.integers(0, 86_400 * 3), after=st.integers(0, 86_400 * 3))
def test_a_date_is_found_where_clocks_go_back(back: int, after: int) -> None:
    local = zone(lambda t: 7200.0 if t < TURN else 3600.0)
    wanted = TURN - back + after
    found = parse_moment(format_moment(wanted, local), TURN + 5 * 86_400, local)
    # One hour is there twice: the first of the two is meant.
    twice = TURN <= wanted < TURN + 3600
    assert found == wanted - (3600 if twice else 0)
