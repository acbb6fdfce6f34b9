"""What is told beside readings: each front end tells the same of the same sequence."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.fingerprints import Fingerprints as Make
from tests.support.fingerprints import NamedEngine
from tests.support.http_engine import HttpEngine, serve, serve_engine
from tests.support.listed_engine import ListedEngine
from tests.support.pages import recorded_page

from specdeck.console.cli.expectations import WatchReporter
from specdeck.console.cli.fingerprint import Exports, verify_on
from specdeck.console.cli.main import outcome
from specdeck.console.state.controller import Controller
from specdeck.console.state.watches import EngineWatches
from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.webhook import Webhook
from specdeck.engine.fingerprint.pins import PinFile, write_pin
from specdeck.engine.launch.process import find_leader
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import Window
from specdeck.engine.operations.alerts import Limits
from specdeck.engine.operations.drift import DriftWatcher
from specdeck.engine.operations.fingerprint import Fingerprints
from specdeck.engine.operations.watches import EngineWatch, Watches

Captured = pytest.CaptureFixture[str]
PIN_LINES = ("a pin", "another pin", "the pin")
fingerprint = Make().seen
URL = fingerprint().url


class OneWatch(Watches):
    """Opens the watch that it is given."""

    def __init__(self, watch: EngineWatch, folder: Path) -> None:
        super().__init__(Fingerprints(open_client, pins=folder, store=folder / "store.sqlite"))
        self._watch = watch

    def open(self, url: str) -> EngineWatch:
        return self._watch


Step = Callable[[NamedEngine, Path], Reading | None]


def reading(t: float, *, rate: float = 0.7, **changed: Any) -> Step:
    """The engine with these facts, and drafts that are accepted at `rate`."""

    def step(engine: NamedEngine, place: Path) -> Reading:
        engine.found = fingerprint(**changed)
        window = Window(1.0, drafts=500.0, drafted=2000.0, accepted=2000.0 * rate)
        return engine.reading(t, window=window)

    return step


def pin(**changed: Any) -> Step:
    def step(engine: NamedEngine, place: Path) -> None:
        write_pin(fingerprint(**changed), place)

    return step


def spoil(engine: NamedEngine, place: Path) -> None:
    place.write_text("{}")


def unpin(engine: NamedEngine, place: Path) -> None:
    place.unlink()


SEQUENCE: tuple[Step, ...] = (
    reading(0.0),
    pin(),
    reading(10.0),
    reading(20.0, live__k=5),
    reading(30.0, live__k=4),
    pin(live__k=4),
    reading(40.0, live__k=4),
    reading(50.0, rate=0.1, live__k=4),
    spoil,
    reading(60.0, rate=0.1, live__k=4),
    reading(70.0, rate=0.1),
    reading(80.0, live__k=4),
    unpin,
    reading(110.0, live__k=4),
    reading(120.0, runtime__driver="575.51.03"),
)
TOLD = [
    "a pin is in demo.json: compared with it from now",
    "drift from demo.json: knob changed: k 6 → 5; vLLM's own fingerprint did not move",
    "another pin is in demo.json: compared with it from now",
    "alert: acceptance rate 30.0% is below acceptance_floor 45.0% (1500 drafts)",
    "demo.json is not a pin: make one with `specdeck fingerprint pin`;"
    " compared with what it held before",
    "drift from demo.json: knob changed: k 4 → 6; vLLM's own fingerprint did not move",
    "as pinned again: demo.json",
    "alert cleared: acceptance rate 70.0% is above acceptance_floor 45.0% again (500 drafts)",
    "the pin demo.json is gone",
]


def drift_of(engine: NamedEngine, place: Path) -> DriftWatcher:
    return DriftWatcher(engine.fetch, PinFile(lambda: place))


def watch_of(engine: NamedEngine, place: Path) -> EngineWatch:
    return EngineWatch(URL, drift_of(engine, place), Limits(acceptance_floor=0.45))


async def play(
    engine: NamedEngine, place: Path, take: Callable[[Reading], Awaitable[object]]
) -> None:
    for step in SEQUENCE:
        if (one := step(engine, place)) is not None:
            await take(one)


async def told_by_command_line(place: Path) -> list[str]:
    engine, lines = NamedEngine(fingerprint()), list[str]()
    reporter = WatchReporter(watch_of(engine, place), lines.append)

    async def take(one: Reading) -> None:
        reporter.take(one)
        await reporter.close()

    await play(engine, place, take)
    return [line.removeprefix("specdeck: ") for line in lines]


async def told_by_console(place: Path) -> list[str]:
    engine = NamedEngine(fingerprint())
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None], group: str) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    controller = Controller([ListedEngine([], url=URL)], spawn=spawn)
    watch = watch_of(engine, place)
    watches = EngineWatches(controller, lambda: OneWatch(watch, place.parent))

    async def take(one: Reading) -> None:
        watches.on_reading(0, one)
        await asyncio.gather(*tasks)

    await play(engine, place, take)
    return [event.text for event in controller.tracks[0].events]


@pytest.mark.parametrize("front_end", [told_by_command_line, told_by_console])
async def test_both_front_ends_tell_the_same_of_the_same_sequence(
    front_end: Callable[[Path], Awaitable[list[str]]], tmp_path: Path
) -> None:
    told = await front_end(tmp_path / "demo.json")
    assert [line.removeprefix(f"{tmp_path}/") for line in told] == TOLD


async def test_verification_after_verification_tells_the_same_of_pins(
    tmp_path: Path, capsys: Captured
) -> None:
    place, engine = tmp_path / "demo.json", NamedEngine(fingerprint())
    watcher, exports = drift_of(engine, place), Exports()

    async def verify(one: Reading) -> None:
        await verify_on(watcher, None, exports, url=URL, as_json=False)

    await play(engine, place, verify)
    said = [line.removeprefix("specdeck: ") for line in capsys.readouterr().err.splitlines()]
    expected = [line for line in TOLD if line.startswith(PIN_LINES) or "is not a pin" in line]
    assert [line.removeprefix(f"{tmp_path}/") for line in said] == expected


class DraftingEngine(HttpEngine):
    """Its page counts a hundred more drafts each time; they are accepted at `rate`."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.drafts = self.accepted = 0.0
        self.answers["/metrics"] = self.page

    def page(self, request: httpx.Request) -> httpx.Response:
        self.drafts += 100
        self.accepted += 500 * self.rate
        counts = {
            "vllm:spec_decode_num_drafts_total": self.drafts,
            "vllm:spec_decode_num_draft_tokens_total": 5 * self.drafts,
            "vllm:spec_decode_num_accepted_tokens_total": self.accepted,
        }
        lines = []
        for line in recorded_page("speculative").splitlines():
            name = line.partition("{")[0]
            if name in counts:
                line = f"{line.rpartition(' ')[0]} {counts[name]}"
            lines.append(line)
        return httpx.Response(200, text="\n".join(lines) + "\n")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What the webhook of this session got."""
    bodies: list[dict[str, Any]] = []

    def take(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(204)

    with serve(take) as url:
        monkeypatch.setenv("SPECDECK_WEBHOOK", url)
        yield bodies


def test_watch_tells_of_an_acceptance_below_the_floor_of_its_config(
    home: Path, tmp_path: Path, posted: list[dict[str, Any]], capsys: Captured
) -> None:
    config = tmp_path / "attach.yaml"
    with serve_engine(DraftingEngine(0.2)) as engine:
        config.write_text(f"attach: {{url: {engine.url}}}\nalerts: {{acceptance_floor: 0.45}}\n")
        words = ["watch", str(config), "--json", "--interval", "0.05", "--count", "8"]
        assert outcome(words) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 8
    (line,) = captured.err.splitlines()
    assert line == (
        "specdeck: alert: acceptance rate 20.0% is below acceptance_floor 45.0% (100 drafts)"
    )
    assert [(one["kind"], one["event"]) for one in posted] == [("alert", "alert.raised")]
    assert posted[0]["engine"] == engine.url


def test_watch_takes_the_limits_of_the_config_that_its_engine_was_started_from(
    home: Path, tmp_path: Path, posted: list[dict[str, Any]], capsys: Captured
) -> None:
    config = tmp_path / "demo.yaml"
    config.write_text("model: a/b\nalerts: {acceptance_floor: 0.45, webhook_env: NOT_SET}\n")
    records = home / "state/engines"
    records.mkdir(parents=True)
    running = find_leader(os.getpid())
    assert running is not None
    with serve_engine(DraftingEngine(0.2)) as engine:
        record = {"schema": 1, "name": "demo", "url": engine.url, "pid": running.pid,
                  "born": running.born, "boot": running.boot, "started": 0.0,
                  "log": "/log", "token_file": "/token",
                  "config": str(config)}  # fmt: skip
        (records / "demo.json").write_text(json.dumps(record))
        assert outcome(["watch", "demo", "--json", "--interval", "0.05", "--count", "8"]) == 0
        assert capsys.readouterr().err.count("is below acceptance_floor 45.0%") == 1
        (records / "demo.json").write_text(json.dumps({**record, "born": 1}))
        assert outcome(["watch", engine.url, "--interval", "0.05", "--count", "8"]) == 0
        assert "acceptance_floor" not in capsys.readouterr().err  # of an engine that has ended
        (records / "demo.json").write_text(json.dumps(record))
        config.unlink()
        assert outcome(["watch", "demo", "--json", "--interval", "0.05", "--count", "2"]) == 0
    assert "no alerts: the config of demo cannot be used" in capsys.readouterr().err


def test_a_config_of_several_engines_cannot_be_watched(
    home: Path, tmp_path: Path, capsys: Captured
) -> None:
    config = tmp_path / "attach.yaml"
    config.write_text("attach: {urls: [http://a:1, http://b:1]}\n")
    assert outcome(["watch", str(config)]) == 2
    assert "names 2 engines: give one: http://a:1" in capsys.readouterr().err
    config.write_text("model: a/b\n")
    assert outcome(["watch", str(config)]) == 2
    assert "no `attach` block" in capsys.readouterr().err


class Posts(Webhook):
    """A webhook that remembers what it is to post."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.posted = asyncio.Event()

    async def post(self, body: Mapping[str, object]) -> str | None:
        self.events.append(body["event"])
        self.posted.set()
        return None


async def test_a_drift_that_a_probe_finds_is_posted(tmp_path: Path) -> None:
    engine, place, posts = NamedEngine(fingerprint()), tmp_path / "demo.json", Posts()
    pin()(engine, place)
    watch = EngineWatch(URL, drift_of(engine, place), webhook=posts)
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None], group: str) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    listed = ListedEngine([], url=URL)
    controller = Controller([listed], spawn=spawn, who="ann", clock=lambda: 100.0)
    watches = EngineWatches(controller, lambda: OneWatch(watch, tmp_path))
    shown = asyncio.Event()
    controller.subscribe(shown.set)
    controller.add_reader(watches.on_reading)
    controller.start()
    first = reading(0.0)(engine, place)
    assert first is not None
    listed.more.put_nowait(first)
    async with asyncio.timeout(30):
        while watches.find_pinned(URL) is None:
            await shown.wait()
            shown.clear()
        watches.judge(fingerprint(live__k=5))
        await posts.posted.wait()
    for task in tasks:
        task.cancel()
    assert posts.events == ["fingerprint.drift"]
