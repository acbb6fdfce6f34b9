"""Real engines for tests/live and tests/gpu, started the way an operator would.

One on the CPU serves a whole session; a test that asks for none starts none.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyte
import pytest
from hypothesis import HealthCheck, settings

from specdeck.engine.control.protocol import PREFIX, TOKEN_HEADER

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "sample_configs" / "demo.yaml"
START_S = 300
"""A cold start on two busy cores; a warm one takes half a minute."""
PATIENCE_S = 300
"""For a command beside a loaded engine: only one that hangs takes so long."""

Tokens = tuple[int, ...]

# How fast a shared machine answers is no property of what is tested.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in ("live", "gpu"):
            if Path(__file__).parent / name in item.path.parents:
                item.add_marker(name)


@dataclass(frozen=True)
class Deck:
    """The `specdeck` command with a home of its own."""

    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SPECDECK_HOME": str(self.home)}

    def __call__(
        self, *arguments: str, timeout: float = PATIENCE_S
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "specdeck", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def start(self, config: Path = CONFIG, port: int = 0) -> "LiveEngine":
        """Starts a detached engine; `stop` must follow."""
        started = self(
            "run", str(config), "--headless", "--detach", "--port", str(port), timeout=START_S
        )
        assert started.returncode == 0, started.stderr[-2000:]
        record = json.loads(started.stdout.splitlines()[-1])
        return LiveEngine(self, record)

    def engines(self) -> list[dict[str, Any]]:
        listed = self("ps", "--json")
        assert listed.returncode == 0, listed.stderr
        found = json.loads(listed.stdout)
        assert isinstance(found, list)
        return found


@dataclass(frozen=True)
class LiveEngine:
    """A real engine that a test may drive."""

    deck: Deck
    record: Mapping[str, Any]

    @property
    def url(self) -> str:
        return str(self.record["url"])

    @property
    def token(self) -> str:
        return Path(self.record["token_file"]).read_text().strip()

    def stop(self) -> None:
        stopped = self.deck("stop", self.url)
        assert stopped.returncode == 0, stopped.stderr


class Driver:
    """Requests to a live engine, and what its counters say."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self.client = client
        self._token = token

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The plugin's answer; an engine that is too short of time for one is asked again."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                reply = await self.client.request(method, f"{PREFIX}/{path}", **more)
                if reply.status_code != 503:
                    return reply
                await asyncio.sleep(0.5)

    async def state(self) -> dict[str, Any]:
        reply = await self.ask("GET", "state")
        reply.raise_for_status()
        state: dict[str, Any] = reply.json()
        return state

    async def until(
        self, wanted: Callable[[dict[str, Any]], bool], timeout: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The state as soon as it is as wanted."""
        async with asyncio.timeout(timeout):
            while True:
                state = await self.state()
                if wanted(state):
                    return state
                await asyncio.sleep(0.1)  # the engine is busy enough

    async def put(self, **change: Any) -> dict[str, Any]:
        reply = await self.ask("PUT", "control", json=change, headers={TOKEN_HEADER: self._token})
        assert reply.status_code == 200, reply.text
        applied: dict[str, Any] = reply.json()
        return applied

    async def counters(self) -> dict[str, float]:
        """vLLM's own counters of drafts, drafted, accepted, generated tokens and preemptions."""
        page = (await self.client.get("/metrics")).text
        names = {
            "drafts": "spec_decode_num_drafts",
            "drafted": "spec_decode_num_draft_tokens",
            "accepted": "spec_decode_num_accepted_tokens",
            "generated": "generation_tokens",
            "preemptions": "num_preemptions",
        }
        found = {
            name: re.search(rf"^vllm:{series}_total\{{.*\}} (\S+)$", page, re.MULTILINE)
            for name, series in names.items()
        }
        return {name: float(match[1]) for name, match in found.items() if match}

    async def complete(self, prompt: Sequence[int], tokens: int) -> Tokens:
        reply = await self.client.post(
            "/v1/completions",
            json={
                "model": "demo",
                "prompt": list(prompt),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
            },
        )
        assert reply.status_code == 200, reply.text
        return tuple(reply.json()["choices"][0]["token_ids"])

    async def batch(self, prompts: Sequence[Sequence[int]], tokens: int = 96) -> list[Tokens]:
        """Greedy continuations of all prompts at once."""
        return list(await asyncio.gather(*(self.complete(p, tokens) for p in prompts)))

    @contextlib.asynccontextmanager
    async def streams(
        self, prompts: Sequence[Sequence[int]], tokens: int = 192
    ) -> AsyncIterator[list[tuple[int, Tokens]]]:
        """Greedy continuations over and over while the block runs: prompt numbers and outputs."""
        done: list[tuple[int, Tokens]] = []

        async def stream(number: int) -> None:
            done.append((number, await self.complete(prompts[number], tokens)))

        async with repeated(*(partial(stream, number) for number in range(len(prompts)))):
            yield done

    @contextlib.asynccontextmanager
    async def bursts(self, prompts: Sequence[Sequence[int]]) -> AsyncIterator[None]:
        """Short greedy continuations of all prompts at once, again and again, with gaps between.

        For a command that is tested beside traffic: vLLM pins its CPU worker to one CPU, and
        on a machine of two a process that starts there beside an engine without a pause has
        waited for minutes. In the gaps it runs.
        """

        async def burst() -> None:
            await self.batch(prompts, tokens=48)
            await asyncio.sleep(0.25)

        async with repeated(burst):
            yield


@contextlib.asynccontextmanager
async def repeated(*works: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Does each of `works` over and over while the block runs, and what is begun to its end."""
    stop = asyncio.Event()

    async def over_and_over(work: Callable[[], Awaitable[None]]) -> None:
        while not stop.is_set():
            await work()

    tasks = [asyncio.create_task(over_and_over(work)) for work in works]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


@pytest.fixture(scope="session")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Deck:
    return Deck(tmp_path_factory.mktemp("specdeck-home"))


@pytest.fixture(scope="session")
def engine(deck: Deck) -> Iterator[LiveEngine]:
    started = deck.start()
    yield started
    started.stop()


@pytest.fixture
async def driver(engine: LiveEngine) -> AsyncIterator[Driver]:
    """A driver of an engine that drafts k_max tokens, and does so again afterwards."""
    async with httpx.AsyncClient(base_url=engine.url, timeout=120) as client:
        driver = Driver(client, engine.token)
        yield driver
        state = await driver.state()
        await driver.put(k=state["k_max"], mode="speculate", fallback="warm")


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Eight prompts of token ids; seeded, so that a failure can be repeated."""
    rng = random.Random(20)
    return [[rng.randrange(300, 1900) for _ in range(rng.randrange(8, 40))] for _ in range(8)]


class Terminal:
    """A program in a pseudo-terminal, and the screen it draws."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], size: str) -> None:
        self._screen = pyte.Screen(*map(int, size.split("x")))
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self.master, self._slave = pty.openpty()
        self.resize(size)
        self.modes = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            command,
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def resize(self, size: str) -> None:
        columns, rows = map(int, size.split("x"))
        self._screen.resize(rows, columns)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def until(self, found: Callable[[str], object], timeout: float = PATIENCE_S) -> str:
        """The screen as soon as `found` is true of it."""
        ends = time.monotonic() + timeout
        while True:
            self.drain()
            if found(self.text):
                return self.text
            assert time.monotonic() < ends, f"not on the screen in {timeout} s:\n{self.text}"

    def drain(self, seconds: float = 0.05) -> None:
        """Takes in what the program wrote."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the program has gone
                return
            if not data:
                return
            self.raw += data
            self._stream.feed(data)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """The program's exit code."""
        ends = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < ends:
            self.drain()
        self.drain()
        return self.process.wait(timeout=1)

    def restored(self) -> bool:
        """Whether the program left the terminal as it was."""
        left = self.raw.rindex(b"\x1b[?1049l") > self.raw.rindex(b"\x1b[?1049h")
        shown = self.raw.rindex(b"\x1b[?25h") > self.raw.rindex(b"\x1b[?25l")
        return left and shown and termios.tcgetattr(self._slave) == self.modes

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self._slave)


@pytest.fixture
def terminal(deck: Deck) -> Iterator[Callable[..., Terminal]]:
    """Starts `specdeck ARGUMENTS` in a terminal of its own."""
    opened: list[Terminal] = []

    def start(*arguments: str, size: str = "120x40") -> Terminal:
        command = [sys.executable, "-m", "specdeck", *arguments]
        opened.append(Terminal(command, deck.environment, size))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
