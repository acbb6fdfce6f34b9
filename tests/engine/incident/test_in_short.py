"""The first lines of an incident's page, where a part of the time is not recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine.incident.test_case import section
from tests.support.readings import START, STATE, URL
from tests.support.recorded_engine import LiveEngine, busy_sample, record

from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.incident.collect import Sources, assemble
from specdeck.engine.incident.material import Span
from specdeck.engine.incident.page import write_page
from specdeck.engine.metrics.reading import Reading

FALL = 500
"""Seconds after the start, at which acceptance falls."""


async def write_short(tmp_path: Path, seconds: Sequence[int], *, fall: int = FALL) -> str:
    """The section of a page about 20 minutes, of which those seconds are recorded."""
    live = LiveEngine()
    readings = [
        await live.look(
            START + n,
            busy_sample(n, accepted=30.0 * min(n, fall) + 4.0 * max(0, n - fall)),
            STATE,
        )
        for n in seconds
    ]
    return write_first_lines(tmp_path, readings)


def write_first_lines(tmp_path: Path, readings: Sequence[Reading]) -> str:
    """The section of a page about 20 minutes with these readings."""
    path = box_path(tmp_path, URL)
    record(path, readings, rows=60).close()
    span = Span(START, START + 1200)
    with closing(History(path)) as history:
        made = assemble(Sources(URL, "demo", history=history), span, None, written=span.end)
    return "\n".join(section(write_page(made, (), time.gmtime), "In short"))


@pytest.mark.parametrize("after", [range(700, 1200), range(1170, 1200), range(520, 1200)])
async def test_a_fall_in_a_gap_is_told_between_its_ends(tmp_path: Path, after: range) -> None:
    short = await write_short(tmp_path, [*range(480), *after])
    first, last = (time.strftime("%H:%M:%S", time.gmtime(START + n)) for n in (479, after.start))
    assert (
        f"Acceptance fell from 60% to 8% between {first} and {last}, while nothing was recorded"
        in short
    )
    assert "No change" not in short
    assert "at once" not in short
    assert "tokens/s" not in short


async def test_acceptance_beside_a_smaller_k_is_that_of_the_tokens_that_both_drafted(
    tmp_path: Path,
) -> None:
    """A policy that sees acceptance fall drafts less, and of less a larger share is accepted."""
    live = LiveEngine()
    was, now = (8.0, 5.0, 4.0, 3.0, 1.5), (4.5, 0.0, 0.0, 0.0, 0.0)
    readings = []
    for n in range(1200):
        before, after = float(min(n, FALL)), float(max(0, n - FALL))
        taken = [a * before + b * after for a, b in zip(was, now, strict=True)]
        had = (10.0 * n, *[10.0 * before] * 4)
        sample = busy_sample(
            n, drafts=10.0 * n, drafted=sum(had), accepted=sum(taken),
            accepted_per_position=tuple(taken), drafted_per_position=had,
            generated=10.0 * n + sum(taken),
        )  # fmt: skip
        readings.append(await live.look(START + n, sample, STATE))
    short = write_first_lines(tmp_path, readings)
    words = "of the first token of drafts, 79% before, 45% after"
    assert f"acceptance fell as well ({words})" in short
    assert "acceptance did not fall" not in short


async def test_no_fall_is_told_of_what_is_known_alone(tmp_path: Path) -> None:
    short = await write_short(tmp_path, range(120))
    first, last = (time.strftime("%H:%M:%S", time.gmtime(START + n)) for n in (119, 1200))
    assert (
        "Neither acceptance nor tokens/s fell for good in what is known of this time:"
        f" 1 min 59 s of 20 min (not {first}–{last})." in short
    )


async def test_no_gap_is_told_of_a_record_that_is_nearly_whole(tmp_path: Path) -> None:
    short = await write_short(tmp_path, [n for n in range(1198) if n % 100 > 3], fall=5000)
    assert "Neither acceptance nor tokens/s fell for good in this time." in short


async def test_a_fall_beside_a_gap_has_its_second(tmp_path: Path) -> None:
    short = await write_short(tmp_path, [*range(300), *range(480, 1200)])
    assert "acceptance fell from 60% to 8% at once (within a second)" in short
    assert "between" not in short


async def test_a_fall_while_nothing_was_drafted_does_not_hide_a_recorded_one(
    tmp_path: Path,
) -> None:
    live, readings, drafted, accepted = LiveEngine(), [], 0.0, 0.0
    for n in range(1200):
        rate = 0.9 if n < 200 else 0.0 if n < 400 else 0.3 if n < 700 else 0.15
        is_idle = 200 <= n < 400
        drafted, accepted = drafted + 50.0 * (not is_idle), accepted + 50.0 * rate
        sample = busy_sample(n, drafted=drafted, accepted=accepted, drafts=drafted / 5)
        readings.append(await live.look(START + n, sample, STATE))
    path = box_path(tmp_path, URL)
    record(path, readings, rows=60).close()
    span = Span(START, START + 1200)
    with closing(History(path)) as history:
        made = assemble(Sources(URL, "demo", history=history), span, None, written=span.end)
    assert [one.silence for one in made.falls] == [None, "unknown"]
    assert made.falls[0].t == pytest.approx(START + 700, abs=3)
