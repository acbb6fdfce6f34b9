"""Greedy streams on an engine, and the steps that served them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import httpx
from benchmarks.gpu.engines import Standing
from benchmarks.gpu.outputs import Flight, Output, with_margins
from tests.support.live_engine import LIMITS, Driver, until

from specdeck.engine.fingerprint.secrecy import redact
from specdeck.engine.policy.step import Step

PATIENCE_S = 120.0
LEAST_STEPS = 5
MORE_S = 20.0
"""Seconds that a window may last longer for so many steps."""

MOST_FAILED = 10
"""Failures after which streams give up: the engine is gone."""

SETTLING = 6
"""Steps after a change that may still have work from before it."""

Prompts = Sequence[Sequence[int]]
Done = TypeVar("Done")


class Refusal(Exception):
    """A request that the engine did not answer as it should."""


def make_prompts(count: int, *, seed: int = 20) -> list[list[int]]:
    """Prompts of token ids, the same for a seed."""
    rng = random.Random(seed)
    return [[rng.randrange(300, 1900) for _ in range(rng.randrange(8, 40))] for _ in range(count)]


class Traffic:
    """Requests to one engine."""

    def __init__(self, client: httpx.AsyncClient, standing: Standing) -> None:
        self.client = client
        self.standing = standing
        with open(standing.token_file) as file:
            self.driver = Driver(client, file.read().strip())

    async def complete(
        self, prompt: Sequence[int], tokens: int, *, margins: bool = False, **more: Any
    ) -> Output:
        """One greedy continuation; raises Refusal."""
        body = {
            "model": "demo",
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            **({"logprobs": 2, "return_tokens_as_token_ids": True} if margins else {}),
            **more,
        }
        try:
            reply = await self.client.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            raise Refusal(f"{type(error).__name__}: {error}") from error
        if not reply.is_success:
            raise Refusal(f"{reply.status_code}: {redact(reply.text)[:300]}")
        choice = reply.json()["choices"][0]
        found = choice["logprobs"]["top_logprobs"] if margins else []
        return Output(tuple(choice["token_ids"]), tuple(map(_margin, found)), choice["text"])

    async def batch(self, prompts: Prompts, tokens: int, *, margins: bool = False) -> list[Output]:
        """All prompts at once; raises Refusal."""
        works = (self.complete(prompt, tokens, margins=margins) for prompt in prompts)
        return list(await asyncio.gather(*works))

    async def alone(self, prompts: Prompts, tokens: int) -> list[Output]:
        """One prompt after the other; raises Refusal."""
        return [await self.complete(prompt, tokens) for prompt in prompts]

    async def put(self, **change: Any) -> dict[str, Any]:
        """A change that the engine has made."""
        return await self.driver.put(who="benchmark", **change)

    async def restore(self) -> None:
        """As the engine was started: k_max, speculating, warm."""
        state = await self.driver.state()
        if state["method"] is not None:
            await self.put(k=state["k_max"], mode="speculate", fallback="warm")

    async def steps(self, since: int) -> list[Step]:
        """The engine's steps after number `since` that it still remembers."""
        reply = await self.driver.ask("GET", f"steps?since={since}")
        reply.raise_for_status()
        return [Step.from_json(step) for step in reply.json()["steps"]]

    async def time_steps(self, seconds: float, is_wanted: Callable[[Step], bool]) -> list[float]:
        """What the wanted steps of the next seconds took, from when the last change has settled.

        An engine so slow that there are next to none of them is given more time.
        """
        seen = (await self.driver.state())["step"] + SETTLING
        found: list[float] = []
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while clock() < end or (len(found) < LEAST_STEPS and clock() < end + MORE_S):
            await asyncio.sleep(min(1.0, max(0.1, end - clock())))
            for step in await self.steps(seen):
                seen = step.step
                if step.seconds is not None and not step.prefill and is_wanted(step):
                    found.append(step.seconds)
        return found

    @contextlib.asynccontextmanager
    async def load(self, streams: int, length: int, **more: Any) -> AsyncIterator[None]:
        """So many streams while the block runs, whose requests do not all end together.

        `length` is the most tokens of a request, prompt and all: the longer the answers, the
        fewer steps lack one.
        """
        rng, tokens = random.Random(streams), (length // 2, length - 64)
        prompts = make_prompts(streams, seed=7)

        async def stream(prompt: Sequence[int]) -> None:
            while True:
                await self.complete(prompt, rng.randint(*tokens), **more)

        await self._wait_for(lambda running: running == 0)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(stream(prompt)) for prompt in prompts]
            try:
                await self._wait_for(lambda running: running >= least_of(streams))
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _wait_for(self, wanted: Callable[[int], bool]) -> None:
        """Until as many requests run as wanted, by vLLM's own gauge: it needs no plugin."""

        async def running() -> int:
            page = (await self.client.get("/metrics")).text
            found = re.findall(r"^vllm:num_requests_running\{.*\} (\S+)$", page, re.MULTILINE)
            return int(sum(map(float, found)))

        await until(running, wanted, timeout=60)


@contextlib.asynccontextmanager
async def open_traffic(standing: Standing, *, plugin: bool = True) -> AsyncIterator[Traffic]:
    """Traffic to the engine that stands there, which is as it was started when the block begins.

    And when it ends, unless by an error: a part that failed leaves the engine as it is.
    Without `plugin` nothing but vLLM's own is asked of it.
    """
    async with httpx.AsyncClient(
        base_url=standing.url, timeout=PATIENCE_S, limits=LIMITS, trust_env=False
    ) as client:
        traffic = Traffic(client, standing)
        if plugin:
            await traffic.restore()
        yield traffic
        if plugin:
            await traffic.restore()


def _margin(top: dict[str, float]) -> float | None:
    best = sorted(top.values(), reverse=True)
    return best[0] - best[1] if len(best) > 1 else None


def least_of(streams: int) -> int:
    """The requests in a step that count as all of them: one may just have ended.

    >>> [least_of(streams) for streams in (1, 8, 64, 256)]
    [1, 8, 62, 248]
    """
    return streams - streams // 32


async def take_reference(traffic: Traffic, prompts: Prompts, tokens: int) -> list[Output]:
    """What the engine answers now, with margins where asking for them changes nothing."""
    plain = await traffic.batch(prompts, tokens)
    told = await traffic.batch(prompts, tokens, margins=True)
    return [with_margins(a, b) for a, b in zip(plain, told, strict=True)]


async def stream_beside(
    work: Awaitable[Done], requests: Sequence[Callable[[], Awaitable[Output]]]
) -> tuple[Done, Flight]:
    """Each of the requests over and over until the work is done; what it and they brought."""
    done = asyncio.Event()
    flight = Flight([], [])

    async def stream(number: int) -> None:
        while not done.is_set() and len(flight.failed) < MOST_FAILED:
            try:
                flight.outputs.append((number, await requests[number]()))
            except Refusal as refused:
                flight.failed.append(str(refused))

    async def work_and_end() -> Done:
        try:
            return await work
        finally:
            done.set()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work_and_end())
        for number in range(len(requests)):
            group.create_task(stream(number))
    return working.result(), flight


async def flip(traffic: Traffic, flips: int, k_max: int) -> list[float]:
    """Random changes of k and mode, one after the other; what each took, in seconds."""
    rng, took = random.Random(7), []
    clock = asyncio.get_running_loop().time
    for _ in range(flips):
        began = clock()
        if rng.random() < 0.3:
            await traffic.put(mode=rng.choice(["speculate", "target-only"]))
        else:
            await traffic.put(k=rng.randint(0, k_max))
        took.append(clock() - began)
        await asyncio.sleep(rng.random() * 0.05)
    return took
