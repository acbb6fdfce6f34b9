from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from specdeck.engine.errors import EngineError
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import ReplayedEngine, read_recording, reading_as_json
from specdeck.engine.metrics.sample import Sample

URL = "http://127.0.0.1:8000"


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "samples.jsonl"
    readings = [Reading(t, URL, sample=Sample(t=t, at=t)) for t in (10.0, 11.0, 14.0)]
    path.write_text("".join(json.dumps(reading_as_json(one)) + "\n" for one in readings))
    return path


async def test_it_keeps_the_recorded_pace(tape: Path) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    engine = ReplayedEngine(read_recording(tape), URL, speed=2.0, sleep=sleep)
    assert [reading.t async for reading in engine.readings(1.0)] == [10.0, 11.0, 14.0]
    assert waited == [0.5, 1.5]


@pytest.mark.parametrize("others", [False, True])
async def test_lines_of_one_moment_or_of_others_leave_the_loop_its_turns(
    tmp_path: Path, others: bool
) -> None:
    """Nothing was waited for between them, so that neither keys nor signals were heard."""
    path, turns = tmp_path / "samples.jsonl", 0
    url = "http://other:1" if others else URL
    line = json.dumps(reading_as_json(Reading(10.0, url, sample=Sample(t=10.0, at=10.0)))) + "\n"
    own = json.dumps(reading_as_json(Reading(10.0, URL, sample=Sample(t=10.0, at=10.0)))) + "\n"
    path.write_text(line * 400 + own)

    async def play() -> int:
        return len([one async for one in ReplayedEngine(read_recording(path), URL).readings(1.0)])

    playing = asyncio.create_task(play())
    while not playing.done():
        turns += 1
        await asyncio.sleep(0)
    assert playing.result() == (1 if others else 401)
    assert turns > 10


async def test_nothing_can_be_changed(tape: Path) -> None:
    engine = ReplayedEngine(read_recording(tape), URL)
    with pytest.raises(EngineError, match="recording"):
        engine.arm()
    assert not engine.armed
    assert not hasattr(engine, "client")


@pytest.fixture
def spoilt(tape: Path) -> ReplayedEngine:
    """The engine of a tape that was overwritten after it had been opened."""
    engine = ReplayedEngine(read_recording(tape), URL)
    tape.write_text('{"t": "x"}\n', encoding="utf-8")
    return engine


async def test_a_file_that_is_spoilt_meanwhile_ends_in_a_reading(spoilt: ReplayedEngine) -> None:
    (last,) = [reading async for reading in spoilt.readings(1.0)]
    assert last.error is not None
    assert ":1: not a sample" in str(last.error)
