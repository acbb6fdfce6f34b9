"""What goes down little by little is told, and what only wavers is not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tests.engine.incident.test_case import section
from tests.support.readings import START, STATE, URL
from tests.support.recorded_engine import LiveEngine, busy_sample, record

from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.incident.collect import Sources, assemble
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.page import write_page
from specdeck.engine.incident.slides import Slide, compare_parts

LENGTH = 1800
"""Seconds of the span."""
TOO_NEW = "What fell in the last 20 s that are known, from "
DENIED = "Neither acceptance nor tokens/s fell for good in this time."


async def write_short(
    tmp_path: Path,
    rate: Callable[[int], float],
    *,
    speed: Callable[[int], float] = lambda n: 100.0,
    recorded: int = LENGTH,
) -> tuple[Material, str]:
    """What is collected where acceptance and tokens/s are those of a second, and in short."""
    live, readings, drafted, accepted, generated = LiveEngine(), [], 0.0, 0.0, 0.0
    for n in range(recorded):
        drafted, accepted = drafted + 50.0, accepted + 50.0 * rate(n)
        generated += speed(n)
        sample = busy_sample(
            n, drafted=drafted, accepted=accepted, drafts=drafted / 5, generated=generated
        )
        readings.append(await live.look(START + n, sample, STATE))
    path = box_path(tmp_path, URL)
    record(path, readings, rows=60).close()
    span = Span(START, START + LENGTH)
    with closing(History(path)) as history:
        made = assemble(Sources(URL, "demo", history=history), span, None, written=span.end)
    return made, "\n".join(section(write_page(made, (), time.gmtime), "In short"))


async def test_what_slides_is_told_and_not_denied(tmp_path: Path) -> None:
    made, short = await write_short(tmp_path, lambda n: 0.6 - 0.2 * n / LENGTH)
    assert made.falls == ()
    assert "- Acceptance slid from 59% to 41% over 30 min." in short
    assert "- Tokens/s did not fall for good in this time." in short
    assert [one.figure for one in made.slides] == ["acceptance"]


async def test_speed_that_slides_with_acceptance_is_told_beside_it(tmp_path: Path) -> None:
    _, short = await write_short(
        tmp_path, lambda n: 0.6 - 0.35 * n / LENGTH, speed=lambda n: 100.0 - 50.0 * n / LENGTH
    )
    assert "Acceptance slid from 59% to 27% over 30 min." in short
    assert "Tokens/s slid from 98 to 53 over 30 min." in short
    assert "for good" not in short


async def test_a_slide_is_told_whole_beside_a_fall_that_has_little_of_it(tmp_path: Path) -> None:
    made, short = await write_short(tmp_path, lambda n: 0.6 * 0.78 ** min(8, n // 180))
    assert made.falls
    assert "Acceptance slid from 60% to 8%" in short


@pytest.mark.parametrize("at", [400, 1200, 1700])
async def test_a_fall_at_once_is_no_slide(tmp_path: Path, at: int) -> None:
    made, short = await write_short(
        tmp_path, lambda n: 0.6 if n < at else 0.2, speed=lambda n: 100.0 if n < at else 60.0
    )
    assert made.slides == ()
    assert "acceptance fell from 60% to 20% at once" in short


async def test_a_fall_of_the_last_seconds_is_too_new_and_not_denied(tmp_path: Path) -> None:
    _, short = await write_short(tmp_path, lambda n: 0.6 if n < LENGTH - 15 else 0.05)
    since = time.strftime("%H:%M:%S", time.gmtime(START + LENGTH - 21))
    assert f"- {TOO_NEW}{since} on, is too new to tell." in short
    assert "slid" not in short


async def test_nothing_is_too_new_where_the_record_goes_on(tmp_path: Path) -> None:
    _, short = await write_short(tmp_path, lambda n: 0.6, recorded=LENGTH + 60)
    assert f"- {DENIED}" in short
    assert TOO_NEW not in short


@pytest.mark.parametrize("seed", range(3))
async def test_noise_is_no_slide(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    rates = [min(1.0, max(0.0, random.gauss(0.55, 0.15))) for _ in range(LENGTH)]
    made, short = await write_short(tmp_path, lambda n: rates[n])
    assert made.slides == ()
    assert f"- {DENIED}" in short


def waver(random: Random, sigma: float, over: float) -> Sequence[Sequence[float]]:
    """An hour of acceptance in columns of 12 s that forgets what it was over so many seconds."""
    kept, value, found = math.exp(-12 / over), random.gauss(0, sigma), []
    for _ in range(288):
        value = kept * value + math.sqrt(1 - kept**2) * random.gauss(0, sigma)
        found.append(max(0.01, 0.55 + value + random.gauss(0, 0.03)))
    return [found[n : n + 24] for n in range(0, 288, 24)]


@pytest.mark.parametrize("over", [12.0, 60.0, 300.0])
def test_traffic_that_wavers_is_hardly_ever_told_as_a_slide(over: float) -> None:
    random = Random(1)
    found = [compare_parts("acceptance", 0, 3600, waver(random, 0.1, over)) for _ in range(200)]
    assert sum(one is not None and one.is_steady for one in found) <= 2
    assert sum(one is not None for one in found) <= 10


def parts_of(*levels: float | None) -> Slide | None:
    return compare_parts("acceptance", 0.0, 60.0 * len(levels), [[one] * 4 for one in levels])


def test_what_comes_back_between_is_told_as_such() -> None:
    found = parts_of(0.6, 0.6, 0.2, 0.6, 0.6, 0.5, 0.3)
    assert found is not None
    assert not found.is_steady
    assert parts_of(0.6, 0.4, 0.5, 0.4, 0.5, 0.4) is None


def test_a_slide_is_of_the_time_that_is_known() -> None:
    found = parts_of(None, 0.6, 0.5, None, 0.4, 0.3, None)
    assert found == Slide("acceptance", 60.0, 360.0, 0.6, 0.3, is_steady=True)
    assert parts_of(None, 0.6, None, 0.4, 0.3) is None
    assert parts_of(0.6, 0.58, 0.55, 0.5) is None
