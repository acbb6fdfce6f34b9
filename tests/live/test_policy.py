"""Policies on a real engine: k moves by itself, and every output stays as it was."""

import asyncio
from collections.abc import Sequence

from tests.support.live_engine import Driver, Prompts


async def test_goodput_flies_without_altering_a_token(driver: Driver, prompts: Prompts) -> None:
    reference = await driver.batch(prompts, tokens=160)
    await driver.put(policy="goodput")
    since = (await driver.state())["step"]
    for _ in range(3):
        assert await driver.batch(prompts, tokens=160) == reference
    steps = (await driver.client.get(f"/v1/specdeck/steps?since={since}")).json()["steps"]
    assert len({step["k"] for step in steps}) > 1
    assert (await driver.state())["policy"] == "goodput"


async def test_threshold_shortens_poor_drafts(driver: Driver, prompts: Prompts) -> None:
    async def hard(prompt: Sequence[int]) -> None:
        body = {"model": "demo", "prompt": prompt, "max_tokens": 128, "temperature": 1.0}
        (await driver.client.post("/v1/completions", json=body)).raise_for_status()

    k_max = (await driver.state())["k_max"]
    await driver.put(policy="threshold")
    await asyncio.gather(*map(hard, prompts))
    state = await driver.state()
    assert state["k"] < k_max
    # By the rule, or by the breaker, which found that these drafts cost more than they give.
    assert state["policy_reason"]
    applied = await driver.put(k=k_max)
    assert "fixed" in applied["notices"][0]
