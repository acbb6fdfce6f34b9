"""The fingerprint screen on an engine that is a function: names, facts, diffs, pins, probes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support.facts_engine import FactsEngine
from tests.support.fingerprints import Fingerprints as Made
from tests.support.pilot import press as press_and_settle
from tests.support.pilot import settle

from specdeck.console.screens.dialogs import Dialog
from specdeck.console.screens.fingerprint import view
from specdeck.console.screens.fingerprint.dialogs import AgainstScreen
from specdeck.console.screens.fingerprint.screen import FingerprintScreen
from specdeck.console.screens.live.screen import LiveScreen
from specdeck.console.state.engine_state import Track
from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.client.webhook import Webhook
from specdeck.engine.fingerprint.compare import compare
from specdeck.engine.operations.alerts import Limits
from specdeck.engine.operations.fingerprint import Fingerprints
from specdeck.engine.operations.watches import Watches
from specdeck.engine.protocol.messages import PREFIX

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole, Until
    from textual.app import App
    from textual.await_remove import AwaitRemove
    from textual.pilot import Pilot

Compare = Callable[..., bool]
LIVE = (
    {"k": 5, "mode": "speculate", "policy": "fixed"},
    {"k": 5, "mode": "target-only", "policy": "fixed"},
    {"k": None, "mode": "speculate", "policy": "goodput"},
)


@pytest.mark.parametrize("live", LIVE, ids=str)
@pytest.mark.parametrize("stamped", [True, False, None])
def test_names_are_told_in_eighty_columns(live: dict[str, Any], stamped: bool | None) -> None:
    made = Made()
    before = made.seen(unread=())
    seen = replace(made.seen(live=live), stamped=stamped)
    for found in (None, compare(before, seen)):
        for row in view.names(seen, found, "pin", lambda _: "b", Track("demo", "http://e:1")):
            right = sum(len(cell.text) for cell in row.right)
            assert sum(len(cell.text) for cell in row.left) + right <= 80


FACTS: dict[str, Any] = {
    "engine": {"vllm": "0.32.0", "commit": "09d54272", "specdeck": "0.1.0"},
    "config": {
        "model": {"dtype": "bfloat16", "max_model_len": 1024, "seed": 0},
        "speculative": {"method": "draft_model", "num_speculative_tokens": 5},
        "cache": {"block_size": 32, "cache_dtype": "auto"},
    },
    "environment": {"VLLM_PLUGINS": "specdeck"},
    "model": {
        "target": {"weights": {"model.safetensors": "a" * 64}},
        "draft": {"weights": {"model.safetensors": "b" * 64}},
        "tokenizer": {"vocab": "c" * 64, "merges": "d" * 64},
    },
    "runtime": {
        "driver": "570.86.15",
        "libraries": {"torch/lib/libtorch_cpu.so": "e" * 64, "vllm/_C.abi3.so": "f" * 64},
    },
}


class Bench:
    """A console on one served engine, with pins and a history in a folder of its own."""

    def __init__(self, kit: type[Kit], console: MakeConsole, until: Until, folder: Path) -> None:
        self.kit, self.console, self.until, self.folder = kit, console, until, folder
        self.served = FactsEngine(deepcopy(FACTS), kit.state)
        self.others: dict[str, FactsEngine] = {}
        self.posted: list[dict[str, Any]] = []
        self.webhook: Webhook | None = None
        self.limits = Limits()
        self.engine = kit.engine([kit.reading(0, self.served.state())])

    def open(self, engine: str) -> EngineClient:
        served = self.others.get(engine, self.served)
        url = engine if "://" in engine else f"http://{engine}"
        return open_client(url, transport=httpx.MockTransport(served))

    @property
    def fingerprints(self) -> Fingerprints:
        folder = self.folder
        return Fingerprints(self.open, pins=folder / "pins", store=folder / "store.sqlite")

    def watches(self) -> Watches:
        return Watches(self.fingerprints, self.limits, webhook=self.webhook)

    def app(self, *more: Any, **settings: Any) -> App[str]:
        return self.console(
            self.engine, *more, watches=self.watches, folders=lambda: [self.folder], **settings
        )

    @asynccontextmanager
    async def run(
        self, *keys: str, size: tuple[int, int] = (120, 40)
    ) -> AsyncIterator[tuple[App[str], Pilot[str]]]:
        """The console, after its first look and what `keys` bring."""
        app = self.app()
        async with app.run_test(size=size) as pilot:
            await rest(pilot)
            for key in keys:
                await press(pilot, key)
            yield app, pilot

    async def turn(self, pilot: Pilot[str], k: int, n: int = 10) -> None:
        """The engine drafts another number of tokens, and a reading says so."""
        self.served.k = k
        reading = self.kit.reading(n, self.served.state())
        await self.engine.more.put(reading)
        await self.until(pilot, lambda: taken(pilot.app) == reading.t)
        await rest(pilot)

    async def pin(self) -> Path:
        return (await self.fingerprints.pin(await self.fingerprints.fetch(self.engine.url))).place


@pytest.fixture
def bench(kit: type[Kit], console: MakeConsole, until: Until, tmp_path: Path) -> Bench:
    return Bench(kit, console, until, tmp_path)


async def rest(pilot: Pilot[str]) -> None:
    """Let readings and looks arrive, those of threads as well."""
    for _ in range(2):
        await settle(pilot)
        passing = ("watch", "fingerprint", "fetch", "probe")
        if workers := [w for w in pilot.app.workers if w.group in passing]:
            await pilot.app.workers.wait_for_complete(workers)
    await settle(pilot)


async def press(pilot: Pilot[str], *keys: str) -> None:
    """Press keys, and let arrive what they bring."""
    await press_and_settle(pilot, *keys)
    await rest(pilot)


def taken(app: App[str]) -> float | None:
    """The time of the reading that the live screen took in last."""
    reading = live(app).controller.tracks[0].reading
    return None if reading is None else reading.t


def shown(app: App[str]) -> str:
    """The words on the fingerprint screen."""
    screen = app.screen
    assert isinstance(screen, FingerprintScreen)
    rows = [screen.query_one(f"#{name}").row for name in ("title", "facts-heading")]  # type: ignore[attr-defined]  # both are lines
    for name in ("names", "said", "facts"):
        rows += screen.query_one(f"#{name}").rows  # type: ignore[attr-defined]  # all are rows
    return "\n".join("".join(cell.text for cell in (*row.left, *row.right)) for row in rows)


def live(app: App[str]) -> LiveScreen:
    """The live screen, wherever it is on the stack."""
    return next(screen for screen in app.screen_stack if isinstance(screen, LiveScreen))


def events(app: App[str]) -> list[str]:
    """What the engine's events say."""
    return [event.text for event in live(app).controller.tracks[0].events]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 20)])
def test_a_diff_against_the_pin(size: tuple[int, int], bench: Bench, snap_compare: Compare) -> None:
    async def look(pilot: Pilot[str]) -> None:
        await bench.pin()
        bench.served.facts["model"]["draft"]["weights"]["model.safetensors"] = "9" * 64
        await rest(pilot)
        await bench.turn(pilot, 4)
        await press(pilot, "f")
        await pilot.press("down", "down")

    assert snap_compare(bench.app(), terminal_size=size, run_before=look)


def test_an_engine_without_the_plugin(bench: Bench, snap_compare: Compare) -> None:
    async def look(pilot: Pilot[str]) -> None:
        bench.served.plugin = False
        await rest(pilot)
        await press(pilot, "f")

    assert snap_compare(bench.app(), terminal_size=(80, 24), run_before=look)


def test_weights_that_are_being_read(bench: Bench, snap_compare: Compare) -> None:
    async def look(pilot: Pilot[str]) -> None:
        await rest(pilot)
        bench.served.partial = [{"fact": "model, runtime", "reason": "being read"}]
        bench.served.progress = [
            {"finished": False, "bytes": 41 * 10**9, "total_bytes": 100 * 10**9,
             "file": "model-00007-of-00019.safetensors"},
        ]  # fmt: skip
        await pilot.press("f")
        await settle(pilot)

    assert snap_compare(bench.app(), terminal_size=(80, 24), run_before=look)


def test_the_live_screen_has_a_badge_while_a_name_differs(
    bench: Bench, snap_compare: Compare, until: Until
) -> None:
    asyncio.run(bench.pin())  # the console looks for its pin once, when it begins

    async def look(pilot: Pilot[str]) -> None:
        await until(pilot, lambda: live(pilot.app).controller.tracks[0].names)
        await bench.turn(pilot, 4)
        await until(pilot, lambda: events(pilot.app))

    assert snap_compare(bench.app(), terminal_size=(80, 24), run_before=look)


async def test_a_drift_is_an_event_once_and_so_is_its_end(bench: Bench, until: Until) -> None:
    await bench.pin()
    app = bench.app()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: live(app).controller.tracks[0].names)
        assert events(app) == []
        await bench.turn(pilot, 4, 10)
        await until(pilot, lambda: events(app))
        await bench.turn(pilot, 3, 20)
        told = [text for text in events(app) if text.startswith(("drift", "as pinned"))]
        assert told == [
            "drift from http-127.0.0.1-8000.json: knob changed: k 5 → 4;"
            " vLLM's own fingerprint did not move"
        ]
        await bench.turn(pilot, 5, 30)
        await until(pilot, lambda: not events(app)[-1].startswith("drift"))
        assert events(app)[-1] == "as pinned again: http-127.0.0.1-8000.json"


async def test_facts_are_asked_for_only_when_the_name_moved(bench: Bench) -> None:
    app = bench.app()
    async with app.run_test() as pilot:
        for n in range(1, 8):
            await bench.turn(pilot, 5, 10 * n)
        assert [sent.url.path for sent in bench.served.asked] == [f"{PREFIX}/facts"]


async def test_a_webhook_hears_of_a_drift(bench: Bench) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        bench.posted.append(json.loads(request.content))
        return httpx.Response(204)

    bench.webhook = Webhook(
        Secret("https://hooks.example/secret"), transport=httpx.MockTransport(answer)
    )
    await bench.pin()
    async with bench.app().run_test() as pilot:
        await rest(pilot)
        await bench.turn(pilot, 4)
        await rest(pilot)
    assert [body["event"] for body in bench.posted] == ["fingerprint.drift"]
    assert bench.posted[0]["differences"] == ["live.k: 5 → 4"]


async def test_a_webhook_that_is_away_is_one_line_without_its_address(bench: Bench) -> None:
    bench.webhook = Webhook(
        Secret("https://hooks.example/secret"),
        transport=httpx.MockTransport(lambda r: httpx.Response(404)),
    )
    await bench.pin()
    async with bench.run() as (app, pilot):
        await bench.turn(pilot, 4)
        await rest(pilot)
        assert events(app)[-1] == "the webhook of this drift answered 404"


async def test_p_pins_and_asks_before_it_overwrites(bench: Bench) -> None:
    async with bench.run("f") as (app, pilot):
        assert "no pin: p pins it" in shown(app)
        await press(pilot, "p")
        assert "pinned sd1:p" in shown(app)
        first = (await bench.fingerprints.read_pin(bench.engine.url) or bench).path  # type: ignore[union-attr]  # it is there
        await bench.turn(pilot, 2, 10)
        assert "knob changed: k 5 → 2" in shown(app)
        for answer, moved in (("escape", False), ("o", True)):
            await pilot.press("p")
            await pilot.pause()
            assert isinstance(app.screen, Dialog)
            await press(pilot, answer)
            pinned = await bench.fingerprints.read_pin(bench.engine.url)
            assert pinned is not None
            assert (pinned.path != first) is moved
        assert "nothing changed" in shown(app)
        assert events(app)[-1].startswith("pinned sd1:p")
        assert live(app).controller.tracks[0].names.differs is None  # type: ignore[union-attr]  # it is named


async def test_no_pin_is_overwritten_with_what_is_seen_no_more(bench: Bench) -> None:
    place = await bench.pin()
    before = place.read_text()
    async with bench.run("f", "p") as (app, pilot):
        assert isinstance(app.screen, Dialog)
        await bench.turn(pilot, 2, 10)
        await press(pilot, "o")
        assert "not pinned: the engine has another fingerprint by now" in shown(app)
    assert place.read_text() == before


async def test_nothing_is_pinned_or_judged_that_the_engine_is_no_more(bench: Bench) -> None:
    place = await bench.pin()
    before = place.read_text()
    async with bench.run("f") as (app, pilot):
        screen = app.screen
        assert isinstance(screen, FingerprintScreen)
        assert "nothing changed" in shown(app)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(screen, "fetch", lambda: None)  # no answer comes
            bench.served.facts["engine"]["vllm"] = "0.33.0"
            await bench.turn(pilot, 5, n=10**9)  # later than the facts
            name = bench.served.names()[2]
            assert f"names and facts of before: the engine is {name} by now" in shown(app)
            assert "nothing changed" not in shown(app)
            assert "= pin" not in shown(app)
            await press(pilot, "p")
            assert isinstance(app.screen, FingerprintScreen)
            assert "not pinned: the engine has another fingerprint by now" in shown(app)
        assert place.read_text() == before
        screen.fetch()
        await rest(pilot)
        assert "of before" not in shown(app)


async def test_another_engine_and_an_earlier_moment_can_be_chosen(
    bench: Bench, kit: type[Kit]
) -> None:
    west = FactsEngine(deepcopy(FACTS), kit.state)
    west.facts["config"]["model"]["dtype"] = "float32"
    bench.others["http://west:1"] = bench.others["west:2"] = west
    other = kit.engine([kit.reading(0)], name="west", url="http://west:1")
    app = bench.app(other)
    async with app.run_test(size=(120, 40)) as pilot:
        await rest(pilot)
        await bench.turn(pilot, 3, 10)
        await press(pilot, "f")
        await press(pilot, "a")
        assert isinstance(app.screen, AgainstScreen)
        kinds = [side.kind for side in app.screen.sides]
        assert kinds == ["engine", "moment", "moment", "nothing"]
        await press(pilot, "enter")
        assert "≠ west" in shown(app)
        assert "dtype float32 → bfloat16" in shown(app)
        await press(pilot, "a")
        await press(pilot, "down", "down", "enter")
        assert "knob changed: k 5 → 3" in shown(app)
        await press(pilot, "a")
        await press(pilot, "tab", *"west:2", "enter")
        assert "against west:2" in shown(app)


async def test_search_fold_and_changes_alone(bench: Bench) -> None:
    await bench.pin()
    async with bench.run() as (app, pilot):
        await bench.turn(pilot, 4)
        await press(pilot, "f")
        assert "max_model_len" not in shown(app)
        await pilot.press("e")
        assert "max_model_len" in shown(app)
        await pilot.press("v")
        assert "max_model_len" not in shown(app)
        assert "changes" in shown(app)
        await pilot.press("v", "slash", *"1024", "enter")
        assert "facts with '1024'" in shown(app)
        assert "max_model_len  1024" in shown(app)
        assert "block_size" not in shown(app)
        await pilot.press("escape")
        assert "block_size" in shown(app)
        await pilot.press("home", "enter")
        assert "commit" not in shown(app)
        await pilot.press("escape")
        assert isinstance(app.screen, LiveScreen)


async def test_the_probe_is_the_third_name_and_its_move_the_alarm(bench: Bench) -> None:
    async with bench.run("f") as (app, pilot):
        await press(pilot, "b")
        assert "sd1:x" in shown(app)
        assert "100.0 % agree over 3 runs" in shown(app)
        await press(pilot, "p")
        bench.served.logprob = -0.75
        await press(pilot, "b")
        assert "behaviour changed with nothing else: probe 0" in shown(app)
        assert events(app)[-1].startswith("drift from")
        assert live(app).controller.tracks[0].names.differs == "behaviour"  # type: ignore[union-attr]  # it is named


async def test_the_last_word_of_a_probe_may_come_when_the_screen_is_left(bench: Bench) -> None:
    async with bench.run("f") as (app, pilot):
        left = app.screen
        assert isinstance(left, FingerprintScreen)
        await press(pilot, "escape")
        left.paint()  # draws nothing, and raises nothing
        assert not left.has_widgets


async def test_a_screen_that_goes_while_its_dialog_is_filled_does_not_end_the_console(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.run("f") as (app, pilot):
        screen, answered = app.screen, asyncio.Event()
        assert isinstance(screen, FingerprintScreen)
        assert screen.fingerprints is not None
        remove, list_moments = screen.remove, screen.fingerprints.moments

        async def list_late(*arguments: Any, **named: Any) -> Any:
            await answered.wait()
            return await list_moments(*arguments, **named)

        def go() -> AwaitRemove:
            answered.set()
            return remove()

        monkeypatch.setattr(screen.fingerprints, "moments", list_late)
        monkeypatch.setattr(screen, "remove", go)
        await pilot.press("a", "u")
        assert isinstance(app.screen, AgainstScreen)  # `u` opens nothing below it
        await pilot.press("escape", "u")
        await settle(pilot)
        assert answered.is_set()
        assert app.is_running


async def test_the_diff_can_be_saved(bench: Bench) -> None:
    await bench.pin()
    async with bench.run() as (_, pilot):
        await bench.turn(pilot, 4)
        await press(pilot, "f")
        await pilot.press("w")
    (saved,) = bench.folder.glob("*.diff")
    text = saved.read_text()
    assert text.startswith("--- pin (http://127.0.0.1:8000)\n+++ http://127.0.0.1:8000\n")
    assert text.endswith("-live.k = 5\n+live.k = 4\n")


async def test_a_diff_is_saved_through_no_link(bench: Bench, tmp_path: Path) -> None:
    await bench.pin()
    other = tmp_path / "somebody's"
    other.write_text("as it was")
    async with bench.run() as (app, pilot):
        await bench.turn(pilot, 4)
        await press(pilot, "f")
        now = int(live(app).context.clock())
        for t in range(now - 60, now + 600):
            name = f"specdeck-fingerprint-{bench.engine.name}-{t}.diff".replace(":", "-")
            (bench.folder / name).symlink_to(other)
        await pilot.press("w")
        await settle(pilot)
    assert other.read_text() == "as it was"


def test_no_name_of_a_fact_writes_a_line_of_its_own_into_a_diff() -> None:
    planted = "a\n+engine.vllm = 9.9\x1b]0;owned\x07"
    made = Made()
    before, after = made.seen(), made.seen(environment={planted: planted}, own=planted)
    text = view.diff(compare(before, after), planted)
    assert all(line.isprintable() for line in text.splitlines())
    assert not any(line.startswith("+engine.vllm") for line in text.split("\n"))


async def test_an_engine_that_is_away_is_one_line(bench: Bench) -> None:
    async with bench.run(size=(80, 24)) as (app, pilot):
        bench.served.away = True
        await press(pilot, "f")
        assert "http://127.0.0.1:8000 cannot be reached" in shown(app)
        await pilot.press("p")
        assert "nothing to pin" in shown(app)


async def test_a_pin_that_was_edited_is_said_and_not_used(bench: Bench) -> None:
    path = await bench.pin()
    path.write_text(path.read_text().replace("bfloat16", "float16"))
    async with bench.run() as (app, pilot):
        assert "was edited by hand" in events(app)[0]
        await press(pilot, "f")
        # Where the line is broken depends on the folder that the test was given.
        assert "was edited by hand" in " ".join(shown(app).split())


async def test_a_pin_made_in_another_shell_is_compared_with_from_then_on(bench: Bench) -> None:
    await bench.pin()
    async with bench.run() as (app, pilot):
        await bench.turn(pilot, 4)
        assert live(app).controller.tracks[0].names.differs == "path"  # type: ignore[union-attr]  # it is named
        await bench.pin()
        await bench.turn(pilot, 4, n=20)
        assert "another pin is in http-127.0.0.1-8000.json" in events(app)[-1]
        assert live(app).controller.tracks[0].names.differs is None  # type: ignore[union-attr]  # it is named
        await bench.turn(pilot, 5, n=30)
        assert "knob changed: k 4 → 5" in events(app)[-1]


async def test_an_open_screen_goes_by_a_pin_that_moved_elsewhere(bench: Bench) -> None:
    place = await bench.pin()
    async with bench.run() as (app, pilot):
        await bench.turn(pilot, 4)
        await press(pilot, "f")
        assert "knob changed: k 5 → 4" in shown(app)
        await bench.pin()
        await bench.turn(pilot, 4, n=20)
        assert "nothing changed" in shown(app)
        await bench.turn(pilot, 3, n=30)
        assert "knob changed: k 4 → 3" in shown(app)
        remove(place)
        await bench.turn(pilot, 3, n=40)
        assert "no pin: p pins it" in shown(app)
        await bench.pin()
        await bench.turn(pilot, 3, n=50)
        assert "nothing changed" in shown(app)


def remove(place: Path) -> None:
    place.unlink()


async def test_a_comparison_that_was_chosen_stays_when_the_pin_moves(bench: Bench) -> None:
    await bench.pin()
    async with bench.run("f") as (app, pilot):
        await press(pilot, "a")
        await press(pilot, "end", "enter")
        assert "no pin: p pins it" in shown(app)
        bench.served.k = 2
        await bench.pin()
        await bench.turn(pilot, 2, n=20)
        assert "no pin: p pins it" in shown(app)


async def test_the_first_pin_of_an_engine_is_found_by_a_console_that_runs(bench: Bench) -> None:
    async with bench.run() as (app, pilot):
        place = await bench.pin()
        await bench.turn(pilot, 5, n=10)
        assert "a pin is in http-127.0.0.1-8000.json" in events(app)[-1]
        await bench.turn(pilot, 4, n=20)
        assert "knob changed: k 5 → 4" in events(app)[-1]
        assert live(app).controller.tracks[0].names.differs == "path"  # type: ignore[union-attr]  # it is named
        place.unlink()
        await bench.turn(pilot, 4, n=30)
        assert "is gone" in events(app)[-1]
        assert live(app).controller.tracks[0].names.differs is None  # type: ignore[union-attr]  # it is named


async def test_a_pin_made_here_is_no_news_from_elsewhere(bench: Bench) -> None:
    async with bench.run("f") as (app, pilot):
        await press(pilot, "p")
        await bench.turn(pilot, 5, n=10)
        assert [text for text in events(app) if "pin" in text] == [events(app)[-1]]
        assert events(app)[-1].startswith("pinned sd1:p")


async def test_readings_of_other_engines_do_not_begin_a_look_anew(
    bench: Bench, kit: type[Kit]
) -> None:
    async with bench.run(size=(80, 24)) as (app, pilot):
        bench.served.away = True
        await press(pilot, "f")
        screen = app.screen
        assert isinstance(screen, FingerprintScreen)
        assert screen.error is not None
        looks = 0
        fetch = screen.fetch

        def counted() -> object:
            nonlocal looks
            looks += 1
            return fetch()

        screen.fetch = counted  # type: ignore[method-assign,assignment]  # counts the questions
        for _ in range(5):  # what every engine's reading does
            live(app).controller.put(0, live(app).controller.tracks[0])
        assert looks <= 1
        await rest(pilot)
        bench.served.away = False
        await bench.turn(pilot, 5, n=20)
        assert screen.error is None
