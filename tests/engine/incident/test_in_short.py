"""The first lines of an incident's page, where a part of the time is not recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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


async def draft(
    k_at: Callable[[int], int],
    share_at: Callable[[int], float],
    *,
    seconds: int = 1200,
    demand: float | None = None,
) -> list[Reading]:
    """Seconds of an engine that drafts k tokens, of which each is accepted with a share where those
    before it were; ten drafts a second, or as many as a demand of tokens a second takes."""
    live, readings = LiveEngine(), []
    drafts, generated, had, taken = 0.0, 0.0, [0.0] * 5, [0.0] * 5
    for n in range(seconds):
        k, share = k_at(n), share_at(n)
        committed = sum(share**place for place in range(k + 1))
        more = 10.0 if demand is None else demand / committed
        drafts, generated = drafts + more, generated + more * committed
        for place in range(k):
            had[place] += more
            taken[place] += more * share ** (place + 1)
        sample = busy_sample(
            n, drafts=drafts, drafted=sum(had), accepted=sum(taken), generated=generated,
            accepted_per_position=tuple(taken), drafted_per_position=tuple(had),
        )  # fmt: skip
        readings.append(await live.look(START + n, sample, STATE))
    return readings


@pytest.mark.parametrize("delay", [0, 3, 10, 40])
@pytest.mark.parametrize("demand", [None, 80.0])
async def test_a_fall_is_told_by_first_tokens_where_shorter_drafts_hide_it(
    tmp_path: Path, delay: int, demand: float | None
) -> None:
    """A policy that sees acceptance fall drafts less, and of less a larger share is accepted."""
    readings = await draft(
        lambda n: 5 if n < FALL + delay else 1, lambda n: 0.8 if n < FALL else 0.45, demand=demand
    )
    short = write_first_lines(tmp_path, readings)
    assert "acceptance of first tokens fell from 80% to 45% at once" in short
    assert short.count("fell from") == (1 if demand else 2)  # the speed, of as many drafts
    assert "did not fall" not in short
    assert "came back" not in short


async def test_a_slide_is_told_by_first_tokens_where_shorter_drafts_hide_it(
    tmp_path: Path,
) -> None:
    readings = await draft(lambda n: 5 - n // 240, lambda n: 0.8 - 0.4 * n / 1200, demand=80.0)
    short = write_first_lines(tmp_path, readings)
    assert "Acceptance of first tokens slid from 78% to 42% over 20 min" in short
    assert "Neither" not in short


@pytest.mark.parametrize("ks", [(5, 1), (1, 5), (5, 2)])
async def test_no_fall_is_told_where_k_alone_was_changed(
    tmp_path: Path, ks: tuple[int, int]
) -> None:
    readings = await draft(lambda n: ks[n >= FALL], lambda n: 0.7, demand=80.0)
    short = write_first_lines(tmp_path, readings)
    assert "Neither acceptance nor tokens/s fell for good in this time." in short


async def test_acceptance_beside_a_smaller_k_is_that_of_the_tokens_that_both_drafted(
    tmp_path: Path,
) -> None:
    """What is no fall by itself is told beside one of the speed."""
    readings = await draft(lambda n: 5 if n < FALL else 1, lambda n: 0.8 if n < FALL else 0.64)
    short = write_first_lines(tmp_path, readings)
    words = "of the first token of drafts, 80% before, 64% after"
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
