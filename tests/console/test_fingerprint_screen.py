"""The fingerprint screen on an engine that is a function: names, facts, diffs, pins, probes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from specdeck.console.screens.dialog import Dialog
from specdeck.console.screens.fingerprint import FingerprintScreen
from specdeck.console.screens.fingerprint_against import AgainstScreen
from specdeck.engine.control.client import EngineClient, client
from specdeck.engine.control.protocol import PREFIX, Capability, EngineState
from specdeck.engine.fingerprint.book import Book
from specdeck.engine.fingerprint.seen import names_of
from specdeck.engine.fingerprint.webhook import Webhook

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.app import App
    from textual.pilot import Pilot

Compare = Callable[..., bool]
PAGE = (Path(__file__).parents[1] / "engine/metrics/pages/speculative.txt").read_text()


class Served:
    """What answers at an engine's URL."""

    def __init__(self, state: EngineState) -> None:
        self.k = 5
        self.base = replace(state, capabilities=(Capability("request_k", True),))
        self.facts: dict[str, Any] = {
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
        self.plugin = True
        self.away = False
        self.progress: dict[str, Any] = {"finished": True}
        self.partial: list[dict[str, str]] = []
        self.logprob = -0.5

    def names(self) -> tuple[dict[str, Any], str, str]:
        tree = {**self.facts, "live": {"k": self.k, "mode": "speculate", "policy": "fixed"}}
        return tree, *names_of(tree, partial=bool(self.partial))

    def state(self) -> EngineState:
        path = self.names()[2]
        return replace(self.base, fingerprint=path, k=self.k, k_set=self.k, version=10 - self.k)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("refused")
        path = request.url.path
        if path == f"{PREFIX}/facts" and self.plugin:
            return httpx.Response(200, json=self.reply())
        if path == f"{PREFIX}/state" and self.plugin:
            return httpx.Response(200, json=self.state().as_json())
        answers: dict[str, Any] = {
            "/version": {"version": "0.32.0"},
            "/v1/models": {"data": [{"id": "demo"}]},
            "/v1/completions": {
                "system_fingerprint": "vllm-0.32.0-09d54272",
                "choices": [{"token_ids": [1], "logprobs": {"token_logprobs": [self.logprob]}}],
            },
        }
        if path == "/metrics":
            return httpx.Response(200, text=PAGE)
        return httpx.Response(200 if path in answers else 404, json=answers.get(path, {}))

    def reply(self) -> dict[str, Any]:
        tree, build, path = self.names()
        return {
            "facts": tree,
            "names": {"build": build, "path": path},
            "fingerprint": path,
            "partial": self.partial,
            "progress": self.progress,
            "system_fingerprint": "vllm-0.32.0-09d54272",
            "responses": {"stamped": True, "reason": None},
            "instance": "a",
        }


class Bench:
    """A console on one served engine, with pins and a history in a folder of its own."""

    def __init__(self, kit: type[Kit], console: MakeConsole, folder: Path) -> None:
        self.kit, self.console, self.folder = kit, console, folder
        self.served = Served(kit.state)
        self.others: dict[str, Served] = {}
        self.posted: list[dict[str, Any]] = []
        self.webhook: Webhook | None = None
        self.engine = kit.engine([kit.reading(0, self.served.state())])

    def open(self, engine: str) -> EngineClient:
        served = self.others.get(engine, self.served)
        url = engine if "://" in engine else f"http://{engine}"
        return client(url, transport=httpx.MockTransport(served))

    @property
    def book(self) -> Book:
        folder = self.folder
        return Book(
            self.open, pins=folder / "pins", store=folder / "store.sqlite", webhook=self.webhook
        )

    def app(self, *more: Any, **settings: Any) -> App[str]:
        return self.console(
            self.engine, *more, book=self.book, folders=lambda: [self.folder], **settings
        )

    async def turn(self, pilot: Pilot[str], k: int, n: int = 10) -> None:
        """The engine drafts another number of tokens, and a reading says so."""
        self.served.k = k
        await self.engine.more.put(self.kit.reading(n, self.served.state()))
        await rest(pilot)

    async def pin(self) -> Path:
        return await self.book.pin(await self.book.look(self.engine.url))


@pytest.fixture
def bench(kit: type[Kit], console: MakeConsole, tmp_path: Path) -> Bench:
    return Bench(kit, console, tmp_path)


async def rest(pilot: Pilot[str]) -> None:
    """Let readings and looks arrive, those of threads as well."""
    for _ in range(3):
        await pilot.pause()
        passing = ("names", "fingerprint", "look", "probe", "webhook")
        if workers := [w for w in pilot.app.workers if w.group in passing]:
            await pilot.app.workers.wait_for_complete(workers)
    await pilot.pause()


def shown(app: App[str]) -> str:
    """The words on the fingerprint screen."""
    screen = app.screen
    assert isinstance(screen, FingerprintScreen)
    rows = [screen.query_one(f"#{name}").row for name in ("title", "facts-heading")]  # type: ignore[attr-defined]  # both are lines
    for name in ("names", "said", "facts"):
        rows += screen.query_one(f"#{name}").rows  # type: ignore[attr-defined]  # all are rows
    return "\n".join("".join(cell.text for cell in (*row.left, *row.right)) for row in rows)


def events(app: App[str]) -> list[str]:
    live = app.screen_stack[1] if len(app.screen_stack) > 2 else app.screen
    screen: Any = next(s for s in app.screen_stack if hasattr(s, "tracks"))
    assert live is not None
    return [event.text for event in screen.tracks[0].events]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 20)])
def test_a_diff_against_the_pin(
    size: tuple[int, int], bench: Bench, snap_compare: Compare
) -> None:
    async def look(pilot: Pilot[str]) -> None:
        await bench.pin()
        bench.served.facts["model"]["draft"]["weights"]["model.safetensors"] = "9" * 64
        await rest(pilot)
        await bench.turn(pilot, 4)
        await pilot.press("f")
        await rest(pilot)
        await pilot.press("down", "down")

    assert snap_compare(bench.app(), terminal_size=size, run_before=look)
