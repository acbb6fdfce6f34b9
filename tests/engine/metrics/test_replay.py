from __future__ import annotations

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
