"""`sweep --calibrate` on a real engine: its cost model is filled, and nothing else has changed."""

from __future__ import annotations

import asyncio
import json
import time

from tests.support.command import Command
from tests.support.live_engine import Driver, LiveEngine, Prompts

from specdeck.engine.protocol.messages import PREFIX, TOKEN_HEADER

SECONDS = 240.0
"""On two cores that much else keeps busy; on idle ones it takes a twentieth of it."""


async def test_calibration_fills_the_cost_model_and_leaves_nothing(
    driver: Driver, prompts: Prompts, engine: LiveEngine, specdeck: Command
) -> None:
    before = await driver.batch(prompts)
    counters, state = await driver.settled_counters(), await driver.state()
    facts = (await driver.ask("GET", "facts")).json()["facts"]

    began = time.monotonic()
    made = await asyncio.to_thread(
        specdeck, "sweep", engine.url, "--calibrate", "--k", "0,3", "--rounds", "2", "--json",
        timeout=SECONDS,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert time.monotonic() - began < SECONDS
    found = json.loads(made.stdout)
    assert found["complete"]
    assert {shape["k"] for shape in found["shapes"]} == {0, 3}
    assert all(shape["steps"] and shape["ms"] > 0 for shape in found["shapes"])

    after = await driver.state()
    assert await driver.counters() == counters
    same = ("instance", "version", "k", "step", "drafts", "drafted_per_position", "fingerprint")
    assert [after[name] for name in same] == [state[name] for name in same]
    assert (await driver.ask("GET", "facts")).json()["facts"] == facts
    outlook = (await driver.tuning()).outlook
    assert [each.tokens_per_second is not None for each in outlook] == [True] * len(outlook)
    # From the prefix cache, and with drafts from the drafter's.
    assert await driver.batch(prompts) == before


async def test_a_request_that_comes_meanwhile_is_served_unaltered(
    driver: Driver, prompts: Prompts
) -> None:
    reference = await driver.complete(prompts[0], 64)
    headers = {TOKEN_HEADER: driver.token}
    refused = 0

    async def calibrate() -> None:
        nonlocal refused
        for _ in range(200):
            body = {"batch": 8, "k": 3, "steps": 16}
            reply = await driver.client.post(f"{PREFIX}/calibrate", json=body, headers=headers)
            if reply.status_code == 409:
                refused += 1
                return
            assert reply.status_code == 200, reply.text

    task = asyncio.create_task(calibrate())
    await asyncio.sleep(0.3)
    assert await driver.complete(prompts[0], 64) == reference
    await task
    assert refused == 1


async def test_nobody_without_the_token_makes_dummy_steps(driver: Driver) -> None:
    reply = await driver.client.post(f"{PREFIX}/calibrate", json={"batch": 1, "k": 0})
    assert reply.status_code == 401
