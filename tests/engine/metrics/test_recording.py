from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_state import engine_state

from specdeck.engine.errors import ConfigError, Unreachable
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import read_recording, reading_as_json
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import EngineState

URL = "http://127.0.0.1:8000"
SAMPLE = Sample(
    t=1000.0,
    at=1.0,
    model="demo",
    accepted_per_position=(0.0,) * 5,
    running=4.0,
    waiting=1.0,
    kv_cache_usage=0.1234,
)
WINDOW = Window(
    seconds=1.0,
    generated=512.35,
    drafts=100.0,
    drafted=300.0,
    accepted=186.0,
    accepted_per_position=(81.0, 62.0, 43.0, 0.0, 0.0),
    drafted_per_position=(100.0, 100.0, 100.0, 0.0, 0.0),
    preemptions=0.5,
    ttft=Histogram((0.01, 0.02, math.inf), (0.0, 10.0, 10.0)),
    itl=Histogram((0.01, 0.02, math.inf), (5.0, 10.0, 10.0)),
)
IDLE = Window(seconds=1.0, generated=0.0, drafts=0.0, drafted=0.0, accepted=0.0)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Readings, or text as it is, as a file."""

    def written(*lines: Reading | str, end: str = "\n") -> Path:
        path = tmp_path / "samples.jsonl"
        texts = [
            line if isinstance(line, str) else json.dumps(reading_as_json(line)) for line in lines
        ]
        path.write_text("\n".join(texts) + end, encoding="utf-8")
        return path

    return written


def _close(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-3, abs_tol=1e-4)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_close, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_close(ours[k], theirs[k]) for k in ours)
    return bool(ours == theirs)


@pytest.mark.parametrize("window", [WINDOW, IDLE, None], ids=["busy", "idle", "first"])
def test_what_was_recorded_is_shown_again(
    window: Window | None, write: Callable[..., Path], state: Callable[..., EngineState]
) -> None:
    seen = Reading(1000.5, URL, sample=SAMPLE, window=window, state=state(k=3, k_set=3))
    line = reading_as_json(seen)
    (again,) = read_recording(write(seen)).readings(URL)
    assert _close(reading_as_json(again), line), (reading_as_json(again), line)


def test_the_operators_k_outlives_target_only(
    write: Callable[..., Path], state: Callable[..., EngineState]
) -> None:
    drafting = Reading(1.0, URL, sample=SAMPLE, state=state(k=4, k_set=4))
    alone = Reading(2.0, URL, sample=SAMPLE, state=state(k=0, k_set=4, mode="target-only"))
    states = [reading.state for reading in read_recording(write(drafting, alone)).readings(URL)]
    assert [(found.k, found.k_set) for found in states if found] == [(4, 4), (0, 4)]


def test_an_outage_and_a_restart_are_replayed(
    write: Callable[..., Path], state: Callable[..., EngineState]
) -> None:
    path = write(
        Reading(1.0, URL, sample=SAMPLE, state=state()),
        Reading(2.0, URL, error=Unreachable("refused")),
        Reading(3.0, URL, sample=SAMPLE, state=state(), restarted=True),
    )
    before, down, after = read_recording(path).readings(URL)
    assert (before.up, down.up, after.up, after.restarted) == (True, False, True, True)
    assert before.state
    assert after.state
    assert before.state.instance != after.state.instance


def test_engines_in_one_file_are_told_apart(write: Callable[..., Path]) -> None:
    other = "http://127.0.0.1:8001"
    found = read_recording(write(*(Reading(t, url, sample=SAMPLE) for t in (1.0, 2.0)
                              for url in (URL, other))))  # fmt: skip
    assert (found.engines, found.count, found.first, found.last) == ((URL, other), 4, 1.0, 2.0)
    assert [reading.t for reading in found.readings(other)] == [1.0, 2.0]


def test_a_last_line_that_was_cut_short_is_left_out(write: Callable[..., Path]) -> None:
    whole = Reading(1.0, URL, sample=SAMPLE)
    assert read_recording(write(whole, '{"t": 2.0, "eng', end="")).count == 1


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('{"t": 2.0, "eng', ":1: not JSON"),
        ('{"t": 2.0}', ":1: not a sample: no engine, up"),
        ("[1]", ":1: not a sample"),
        ("", "no samples"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_by_its_line(
    bad: str, why: str, write: Callable[..., Path]
) -> None:
    with pytest.raises(ConfigError, match=why):
        read_recording(write(bad))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        read_recording(tmp_path / "none.jsonl")


STATE = engine_state()
STRANGE = (
    "[]", "{}", '"x"', "-1", "1e300", "true", "null", "NaN", "1" + "0" * 30, "9" * 5000,
    r'"\ud800"', "[" * 99 + "]" * 99, "[null]", '["x"]', '{"p50": "x", "p95": {}}', "1e-300", "300",
)  # fmt: skip


@pytest.mark.parametrize("key", [*reading_as_json(Reading(1.0, URL, sample=SAMPLE))])
def test_a_strange_value_is_read_or_an_error_of_ours(key: str, write: Callable[..., Path]) -> None:
    whole = reading_as_json(Reading(1.0, URL, sample=SAMPLE, window=WINDOW, state=STATE))
    for strange in STRANGE:
        text = json.dumps({**whole, key: 777777}).replace("777777", strange)
        path = write(text)
        with suppress(ConfigError):
            found = read_recording(path)
            shown = [reading_as_json(one) for url in found.engines for one in found.readings(url)]
            json.dumps(shown, allow_nan=False).encode()


def test_a_line_says_what_is_strange_in_it(write: Callable[..., Path]) -> None:
    whole = reading_as_json(Reading(1.0, URL, sample=SAMPLE))
    with pytest.raises(ConfigError, match=":2: not a sample: k_max is a text, not a whole number"):
        read_recording(write(json.dumps(whole), json.dumps({**whole, "k_max": "5"})))


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    write: Callable[..., Path],
) -> None:
    with pytest.raises(ConfigError, match="too long a line"):
        read_recording(write("x" * 3_000_000))


def test_a_recording_of_ten_thousand_engines_is_refused_as_soon_as_it_shows(
    write: Callable[..., Path],
) -> None:
    """Each is played on its own, and reads the whole file: a console could not be quit."""
    urls = [f"http://127.0.0.1:{port}" for port in range(1, 10_001)]
    with pytest.raises(ConfigError, match="more than 256 engines"):
        read_recording(write(*(Reading(1.0, url, sample=SAMPLE) for url in urls)))


@pytest.mark.parametrize(
    "strange", [{"model": "m" * 100_000}, {"acceptance_per_position": [0.5] * 100_000}]
)
def test_a_text_or_a_list_of_absurd_length_is_in_no_sample(
    strange: dict[str, Any], write: Callable[..., Path]
) -> None:
    whole = reading_as_json(Reading(1.0, URL, sample=SAMPLE))
    with pytest.raises(ConfigError, match="too long a text or a list"):
        read_recording(write(json.dumps({**whole, **strange})))
