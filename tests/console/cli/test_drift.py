"""Drift beside samples and round after round: lines, gauges, exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.fingerprints import NamedEngine

from specdeck.console.cli.expectations import WatchReporter
from specdeck.console.cli.fingerprint import Exports, verify_on
from specdeck.engine.errors import Unreachable, UsageError
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.fingerprint.name import compute_names
from specdeck.engine.fingerprint.pins import PinFile, write_pin
from specdeck.engine.operations.alerts import Limits
from specdeck.engine.operations.drift import DriftWatcher
from specdeck.engine.operations.watches import EngineWatch

Captured = pytest.CaptureFixture[str]
URL = "http://e:1"


def found(k: int) -> Fingerprint:
    """An engine that drafts k tokens."""
    facts: dict[str, Any] = {"engine": {"vllm": "0.32.0"}, "live": {"k": k}}
    return Fingerprint(1.0, URL, *compute_names(facts, partial=False), facts)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "demo.json"


def reporter(engine: NamedEngine, place: Path, said: list[str]) -> WatchReporter:
    drift = DriftWatcher(engine.fetch, PinFile(lambda: place), names_unpinned=False)
    return WatchReporter(EngineWatch(URL, drift, Limits()), said.append)


async def take(reporter: WatchReporter, engine: NamedEngine, t: float, k: int) -> None:
    """A reading of the engine with that k, and what follows from it."""
    engine.found = found(k)
    reporter.take(engine.reading(t))
    await reporter.close()


async def test_a_drift_beside_samples_is_one_line(place: Path) -> None:
    engine, said = NamedEngine(found(6)), list[str]()
    write_pin(found(6), place)
    beside = reporter(engine, place, said)
    for t, k in ((0, 6), (10, 5), (20, 5)):
        await take(beside, engine, t, k)
    assert said == ["specdeck: drift from demo.json: knob changed: k 6 → 5"]


def brings(*left: Fingerprint | Unreachable) -> Callable[[Fingerprint | None], Any]:
    """Brings these, one after the other."""
    answers = list(left)

    async def fetch(pinned: Fingerprint | None) -> Fingerprint:
        one = answers.pop(0)
        if isinstance(one, Unreachable):
            raise one
        return one

    return fetch


def pinned_to(place: Path, *left: Fingerprint | Unreachable) -> DriftWatcher:
    write_pin(found(6), place)
    return DriftWatcher(brings(*left), PinFile(lambda: place, required=True))


async def test_rounds_go_on_while_the_engine_is_away(
    capsys: Captured, tmp_path: Path, place: Path
) -> None:
    file = tmp_path / "drift.prom"
    slept = list[float]()

    class Over(Exception):
        """Enough rounds."""

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise Over

    watcher = pinned_to(place, found(6), Unreachable("no answer"), found(5))
    with pytest.raises(Over):
        await verify_on(watcher, 60.0, Exports(file=file), url=URL, as_json=False, sleep=sleep)
    assert slept == [60.0] * 3
    captured = capsys.readouterr()
    lines = [line.partition("  ")[2] for line in captured.out.splitlines()]
    assert lines[0] == "nothing changed"
    assert lines[1].startswith("knob changed: k 6 → 5")
    assert captured.err == "specdeck: no answer\n"
    assert f'specdeck_fingerprint_drifts_total{{engine="{URL}"}} 1.0' in text_of(file)


async def test_rounds_go_on_while_their_file_cannot_be_written(
    capsys: Captured, tmp_path: Path, place: Path
) -> None:
    folder, aside = tmp_path / "collected", tmp_path / "aside"
    folder.mkdir()
    rounds = 0

    class Over(Exception):
        """Enough rounds."""

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            folder.rename(aside)
        elif rounds == 3:
            aside.rename(folder)
        elif rounds == 5:
            raise Over

    watcher, file = pinned_to(place, *[found(6)] * 5), folder / "drift.prom"
    with pytest.raises(Over):
        await verify_on(watcher, 60.0, Exports(file=file), url=URL, as_json=False, sleep=sleep)
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 5
    assert said.err.splitlines() == [
        f"specdeck: {file}: no such file or directory: check --metrics-file; "
        "it is tried again after each verification",
        f"specdeck: {file} is written again",
    ]


async def test_a_file_that_could_never_be_written_is_wrong_usage(
    tmp_path: Path, place: Path
) -> None:
    exports = Exports(file=tmp_path / "nowhere" / "drift.prom")
    with pytest.raises(UsageError, match="no such file"):
        await verify_on(pinned_to(place, found(6)), 60.0, exports, url=URL, as_json=False)


def text_of(file: Path) -> str:
    return file.read_text()


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize(("k", "code"), [(6, 0), (5, 1)])
async def test_one_round_has_the_exit_code_of_verify(k: int, code: int, place: Path) -> None:
    watcher = pinned_to(place, found(k))
    assert await verify_on(watcher, None, Exports(), url=URL, as_json=True) == code


async def test_one_round_on_an_engine_that_is_away_is_its_error(
    place: Path, tmp_path: Path
) -> None:
    watcher = pinned_to(place, Unreachable("no answer"))
    file = tmp_path / "drift.prom"
    with pytest.raises(Unreachable, match="no answer"):
        await verify_on(watcher, None, Exports(file=file), url=URL, as_json=True)
    assert f'specdeck_fingerprint_up{{engine="{URL}"}} 0.0' in text_of(file)


async def test_samples_without_a_pin_ask_nothing_until_there_is_one(place: Path) -> None:
    engine, said = NamedEngine(found(6)), list[str]()
    beside = reporter(engine, place, said)
    await take(beside, engine, 0, 6)
    assert (said, engine.fetches) == ([], 0)
    write_pin(found(6), place)
    await take(beside, engine, 10, 6)
    await take(beside, engine, 20, 5)
    write_pin(found(5), place)
    await take(beside, engine, 30, 5)
    await take(beside, engine, 40, 6)
    assert said == [
        "specdeck: a pin is in demo.json: compared with it from now",
        "specdeck: drift from demo.json: knob changed: k 6 → 5",
        "specdeck: another pin is in demo.json: compared with it from now",
        "specdeck: drift from demo.json: knob changed: k 5 → 6",
    ]


async def test_rounds_go_by_the_pin_as_it_is_by_then(capsys: Captured, place: Path) -> None:
    watcher = pinned_to(place, *[found(4)] * 4)

    async def verify() -> int:
        return await verify_on(watcher, None, Exports(), url=URL, as_json=False)

    assert await verify() == 1
    write_pin(found(4), place)
    assert await verify() == 0
    said = capsys.readouterr().err
    assert said == "specdeck: another pin is in demo.json: compared with it from now\n"
    remove(place)
    assert await verify() == 0
    assert "there is not a pin" in capsys.readouterr().err
