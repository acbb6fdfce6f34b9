"""Engines of several ranks, started from files that ship, flown, found again and ended.

One start for each topology: what is asked of it stands in one test.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
from tests.support.command import Command
from tests.support.live_engine import LIMITS, ROOT, Driver, LiveEngine, Prompts, Tokens, until
from tests.support.ray_cluster import count_workers, ray_cluster

from specdeck.engine.launch import process
from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER

pytestmark = pytest.mark.long

FLIPS = 60
SAMPLES = ROOT / "sample_configs"


@contextmanager
def started(specdeck: Command, config: Path, **variables: str) -> Iterator[LiveEngine]:
    """The engine of a file; ended, with nothing of it left."""
    engine = LiveEngine.start(specdeck, config, **variables)
    leader = process.find_leader(engine.pid)
    assert leader is not None
    try:
        yield engine
        engine.stop()
        assert process.members(leader) == ()
    finally:
        engine.clear_away()


def count(engine: LiveEngine, title: str) -> int:
    """The engine's processes with this in their titles, of which the kernel keeps 15 letters."""
    leader = process.find_leader(engine.pid)
    assert leader is not None
    return sum(title in one.name for one in process.members(leader))


async def prove_every_k(driver: Driver, prompts: Prompts, reference: list[Tokens]) -> None:
    """Each k is what vLLM's counters show, and none alters an output."""
    for k in range(1, (await driver.state())["k_max"] + 1):
        await driver.put(k=k)
        before = await driver.counters()
        assert await driver.batch(prompts) == reference
        after = await driver.counters()
        drafts = after["drafts"] - before["drafts"]
        assert after["drafted"] - before["drafted"] == k * drafts > 0


async def flip(driver: Driver, prompts: Prompts, reference: list[Tokens]) -> None:
    """Random changes under four streams: each answered, no output altered."""
    k_max, rng = (await driver.state())["k_max"], random.Random(12)
    async with driver.streams(prompts[:4]) as outputs:
        for _ in range(FLIPS):
            k = rng.randint(0, k_max)
            assert (await driver.put(k=k))["applied"]["k"] == k
    assert outputs
    assert [number for number, found in outputs if found != reference[number]] == []


async def find_again(
    engine: LiveEngine, driver: Driver, prompts: Prompts, reference: list[Tokens]
) -> None:
    """Another process finds the engine and turns it; its name returns with its settings."""

    async def name() -> str:
        state = await driver.until(lambda state: "~" not in (state["fingerprint"] or "~"))
        return str(state["fingerprint"])

    await driver.put(k=2)
    at_two = await name()
    await driver.put(k=4)
    assert await name() != at_two
    assert engine.url in engine.specdeck.urls()
    turned = engine.specdeck("set", engine.url, "k=2", "--json")
    assert turned.returncode == 0, turned.stderr
    assert json.loads(turned.stdout)["applied"]["k"] == 2
    assert await name() == at_two
    before = await driver.counters()
    assert await driver.batch(prompts) == reference
    after = await driver.counters()
    drafts = after["drafts"] - before["drafts"]
    assert after["drafted"] - before["drafted"] == 2 * drafts > 0


async def fly(engine: LiveEngine, driver: Driver, prompts: Prompts) -> None:
    """Everything that holds for an engine however many ranks it has."""
    await driver.put(k=0)
    before = await driver.counters()
    reference = await driver.batch(prompts)
    assert await driver.counters() == {
        **before,
        "generated": before["generated"] + sum(map(len, reference)),
    }
    await prove_every_k(driver, prompts, reference)
    await flip(driver, prompts, reference)
    await find_again(engine, driver, prompts, reference)


async def test_two_tensor_parallel_ranks(specdeck: Command, prompts: Prompts) -> None:
    with started(specdeck, SAMPLES / "demo-tp2.yaml") as engine:
        assert count(engine, "Worker_TP") == 2
        async with httpx.AsyncClient(base_url=engine.url, timeout=120, limits=LIMITS) as client:
            await fly(engine, Driver(client, engine.token), prompts)


async def test_two_tensor_parallel_ranks_on_ray(
    specdeck: Command, prompts: Prompts, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="pip install ray")
    config = tmp_path / "ray.yaml"
    text = (SAMPLES / "demo-tp2.yaml").read_text()
    text = text.replace("./models", str(SAMPLES / "models"))
    config.write_text(text.replace("backend: mp", "backend: ray"))
    with ray_cluster() as variables:
        with started(specdeck, config, **variables) as engine:
            assert count_workers() == 2
            async with httpx.AsyncClient(base_url=engine.url, timeout=120, limits=LIMITS) as client:
                await fly(engine, Driver(client, engine.token), prompts)
        # Ray ends its actors by itself, once their engine is gone.
        await until(partial(asyncio.to_thread, count_workers), lambda left: left == 0)


async def test_two_data_parallel_ranks_are_changed_together_or_not_at_all(
    specdeck: Command, prompts: Prompts
) -> None:
    with started(specdeck, SAMPLES / "demo-dp2.yaml") as engine:
        assert count(engine, "EngineCor") == 2
        async with httpx.AsyncClient(base_url=engine.url, timeout=120, limits=LIMITS) as client:
            driver = Driver(client, engine.token)
            await fly(engine, driver, prompts)
            await prove_each_rank(driver, prompts)
            await stall_one(engine, driver, prompts)


async def prove_each_rank(driver: Driver, prompts: Prompts) -> None:
    """Counts and steps of each rank: both worked, at the k that was set."""
    applied = await driver.put(k=3)
    await driver.batch(prompts)
    state, counters = await driver.state(), await driver.counters()
    assert [rank["k"] for rank in state["ranks"]] == [3, 3]
    assert sum(rank["drafts"] for rank in state["ranks"]) == state["drafts"]
    assert state["drafts"] <= counters["drafts"]  # the plugin came after the warm-up
    for rank, known in enumerate(applied["ranks"]):
        path = f"steps?since={known['step'] + 1}&rank={rank}"
        steps = (await driver.ask("GET", path)).json()["steps"]
        assert {step["k"] for step in steps} == {3}
        drafts = sum(step["drafts"] for step in steps)
        assert sum(step["drafted"] for step in steps) == 3 * drafts > 0
    able = {one["name"]: one["available"] for one in state["capabilities"]}
    assert able["live_k"]
    assert not any(able[name] for name in ("trial", "policy.goodput", "policy.threshold"))


async def stall_one(engine: LiveEngine, driver: Driver, prompts: Prompts) -> None:
    """A rank that does not answer keeps the other one from changing too."""
    await driver.put(k=0)
    reference = await driver.batch(prompts)
    (second,) = [
        one for one in psutil.process_iter() if engine_title(one, engine.pid) == "EngineCore_DP1"
    ]
    second.suspend()
    try:
        reply = await driver.client.put(
            f"{PREFIX}/control", json={"k": 4}, headers={TOKEN_HEADER: driver.token}
        )
    finally:
        second.resume()
    assert reply.status_code == 503
    assert "since rank 1 did not follow" in reply.json()["error"]["message"]
    state = await driver.state()
    assert [rank["k"] for rank in state["ranks"]] == [0, 0]
    assert await driver.batch(prompts) == reference
    await driver.put(k=4)
    assert await driver.batch(prompts) == reference


def engine_title(one: psutil.Process, session: int) -> str | None:
    """What vLLM calls the process, where it is of this session."""
    with suppress(psutil.Error, ProcessLookupError):
        if os.getsid(one.pid) == session:
            return one.cmdline()[0].removeprefix("VLLM::")
    return None
