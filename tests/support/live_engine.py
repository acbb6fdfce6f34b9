"""Real engines: started the way an operator would, driven over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx

from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER
from specdeck.engine.protocol.tuning import Tuning
from tests.support.command import PATIENCE_S, Command

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "sample_configs" / "demo.yaml"
MODELS = ROOT / "sample_configs" / "models"
START_S = 300.0
"""A cold start on two busy cores; a warm one takes half a minute."""

TOKENS = 64
"""Of a continuation: rounds enough for every k, at no more than they cost."""

LIMITS = httpx.Limits(max_keepalive_connections=0)
"""Of a client that an engine answers whatever the machine does: each request has a connection of
its own, and meets no idle one that is being closed."""

Tokens = tuple[int, ...]
Prompts = Sequence[Sequence[int]]
"""As token ids."""
Found = TypeVar("Found")


@dataclass
class LiveEngine:
    """A real engine that a test may drive, and restart if it ended it."""

    specdeck: Command
    config: Path
    variables: Mapping[str, str]
    """Of its environment, beside those that the command has."""
    record: Mapping[str, Any]

    @classmethod
    def start(cls, specdeck: Command, config: Path = DEMO, **variables: str) -> LiveEngine:
        """Starts a detached engine on a free port; `stop` must follow."""
        return cls(specdeck, config, variables, _start(specdeck, config, 0, variables))

    def restart(self) -> None:
        """Starts it at its address again, once it is gone."""
        url = self.url
        self.record = _start(self.specdeck, self.config, self.port, self.variables)
        assert self.url == url

    @property
    def url(self) -> str:
        return str(self.record["url"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return int(self.record["pid"])

    @property
    def token(self) -> str:
        return Path(self.record["token_file"]).read_text().strip()

    def stop(self) -> None:
        """Ends it, which must be possible."""
        stopped = self.specdeck("stop", self.url)
        assert stopped.returncode == 0, stopped.stderr

    def clear_away(self) -> None:
        """Ends it if it runs."""
        self.specdeck("stop", self.url)


def _start(
    specdeck: Command, config: Path, port: int, variables: Mapping[str, str]
) -> Mapping[str, Any]:
    started = replace(specdeck, extra=variables)(
        "run", str(config), "--headless", "--detach", "--port", str(port), timeout=START_S
    )
    assert started.returncode == 0, started.stderr[-2000:]
    record = json.loads(started.stdout.splitlines()[-1])
    assert isinstance(record, dict)
    try:
        _wait_for_facts(str(record["url"]), variables.get("VLLM_API_KEY", ""))
    except BaseException:
        specdeck("stop", str(record["url"]))
        raise
    return record


def _wait_for_facts(url: str, key: str) -> None:
    """Until it has read its files: its names move then, once, whatever a test does meanwhile."""
    ends = time.monotonic() + PATIENCE_S
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=url, headers=headers) as client:
        while True:
            reply = client.get(f"{PREFIX}/facts", timeout=PATIENCE_S)
            if reply.status_code != 200 or reply.json()["progress"].get("finished"):
                return
            assert time.monotonic() < ends, reply.json()["progress"]
            time.sleep(0.2)


class Driver:
    """Requests to a live engine, and what its counters say."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self.client = client
        self.token = token

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

    async def tuning(self) -> Tuning:
        reply = await self.ask("GET", "tuning")
        assert reply.status_code == 200, reply.text
        return Tuning.from_json(reply.json())

    async def until(
        self, wanted: Callable[[dict[str, Any]], bool], timeout: float = PATIENCE_S
    ) -> dict[str, Any]:
        """The state as soon as it is as wanted."""
        return await until(self.state, wanted, timeout)

    async def put(self, **change: Any) -> dict[str, Any]:
        reply = await self.ask("PUT", "control", json=change, headers={TOKEN_HEADER: self.token})
        assert reply.status_code == 200, reply.text
        applied: dict[str, Any] = reply.json()
        return applied

    async def counters(self) -> dict[str, float]:
        """vLLM's own counters of drafts, drafted, accepted, generated tokens and preemptions.

        Those of all data-parallel ranks together.
        """
        page = (await self.client.get("/metrics")).text
        names = {
            "drafts": "spec_decode_num_drafts",
            "drafted": "spec_decode_num_draft_tokens",
            "accepted": "spec_decode_num_accepted_tokens",
            "generated": "generation_tokens",
            "preemptions": "num_preemptions",
        }
        found = {
            name: re.findall(rf"^vllm:{series}_total\{{.*\}} (\S+)$", page, re.MULTILINE)
            for name, series in names.items()
        }
        return {name: sum(map(float, values)) for name, values in found.items() if values}

    async def settled_counters(self) -> dict[str, float]:
        """The counters once they stand still: vLLM counts a step after its answers are out."""
        found = await self.counters()
        while True:
            await asyncio.sleep(0.5)
            older, found = found, await self.counters()
            if older == found:
                return found

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

    async def batch(self, prompts: Prompts, tokens: int = TOKENS) -> list[Tokens]:
        """Greedy continuations of all prompts at once."""
        return list(await asyncio.gather(*(self.complete(p, tokens) for p in prompts)))

    @contextlib.asynccontextmanager
    async def streams(
        self, prompts: Prompts, tokens: int = TOKENS
    ) -> AsyncIterator[list[tuple[int, Tokens]]]:
        """Greedy continuations over and over while the block runs: prompt numbers and outputs."""
        done: list[tuple[int, Tokens]] = []

        async def stream(number: int) -> None:
            done.append((number, await self.complete(prompts[number], tokens)))

        async with repeated(*(partial(stream, number) for number in range(len(prompts)))):
            yield done

    @contextlib.asynccontextmanager
    async def bursts(self, prompts: Prompts) -> AsyncIterator[None]:
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


async def until(
    look: Callable[[], Awaitable[Found]],
    wanted: Callable[[Found], bool],
    timeout: float = PATIENCE_S,
) -> Found:
    """What `look` brings as soon as it is as wanted."""
    async with asyncio.timeout(timeout):
        while True:
            found = await look()
            if wanted(found):
                return found
            await asyncio.sleep(0.1)  # the engine is busy enough


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
