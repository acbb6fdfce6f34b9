"""Changing k and mode on a real engine while it serves: nothing lost, nothing altered."""

import asyncio
import random
from collections.abc import Sequence

import httpx
import pytest
from tests.support.live_engine import Driver, Prompts, Tokens

FLIPS = 200

Metrics = tuple[Tokens, int, int, int]
"""Token ids; steps that verified, tokens accepted in them and tokens drafted for them."""


def moved(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in before}


async def test_every_k_is_observed_in_vllms_own_counters(driver: Driver, prompts: Prompts) -> None:
    reference = await driver.batch(prompts)
    k_max = (await driver.state())["k_max"]
    for k in (*range(1, k_max + 1), 0):
        await driver.put(k=k)
        before = await driver.counters()
        assert await driver.batch(prompts) == reference
        work = moved(before, await driver.counters())
        assert work["generated"] == sum(map(len, reference))
        assert work["drafted"] == k * work["drafts"]
        assert (work["drafts"] > 0) == (k > 0)


async def metrics_of(driver: Driver, prompt: Sequence[int], tokens: int, **xargs: int) -> Metrics:
    """The ids of a greedy continuation, its verifying steps and what they accepted."""
    body: dict[str, object] = {
        "model": "demo",
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    if xargs:
        body["vllm_xargs"] = xargs
    reply = await driver.client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    found = reply.json()
    metrics = found["metrics"]["speculative_decoding"]
    return (
        tuple(found["choices"][0]["token_ids"]),
        metrics["num_spec_steps"],
        metrics["num_accepted_draft_tokens"],
        metrics["num_draft_tokens"],
    )


async def test_k_max_keeps_the_shape_of_a_step_that_lets_a_cached_request_in(
    driver: Driver, prompts: Prompts
) -> None:
    # One token more than a block of the cache: the second time there is one left to compute.
    prompt, tokens = ([*prompts[0]] * 8)[:33], 40
    k_max = (await driver.state())["k_max"]

    async def unverified(**xargs: int) -> int:
        """Tokens of a continuation of `prompt` that come from steps without rows for drafts."""
        ids, steps, accepted, drafted = await metrics_of(driver, prompt, tokens, **xargs)
        assert ids == reference
        assert drafted == xargs.get("specdeck_k", k) * steps
        return tokens - steps - accepted

    k = k_max
    reference = await driver.complete(prompt, tokens)
    assert await unverified() == 0  # vLLM gives the admission as many rows as the others have
    assert await unverified(specdeck_k=0) == tokens
    k = 2
    await driver.put(k=k)
    assert await unverified() == 1
    k = k_max
    await driver.put(k=k)
    assert await unverified() == 0


async def test_drafts_that_had_a_position_are_counted_on_the_page(
    driver: Driver, prompts: Prompts
) -> None:
    async def per_position() -> list[float]:
        page = (await driver.client.get("/metrics")).text
        lines = [
            x for x in page.splitlines() if x.startswith("specdeck:draft_tokens_per_position_t")
        ]
        return [float(line.rsplit(" ", 1)[1]) for line in lines]

    await driver.put(k=2)
    before = await per_position()
    drafts = moved(counted := await driver.counters(), counted)["drafts"]
    await driver.batch(prompts)
    drafts = (await driver.counters())["drafts"] - counted["drafts"]
    rise = [b - a for a, b in zip(before, await per_position(), strict=True)]
    assert rise[:2] == [drafts, drafts]
    assert not any(rise[2:])


async def test_200_random_flips_alter_and_lose_nothing(driver: Driver, prompts: Prompts) -> None:
    reference = await driver.batch(prompts, tokens=128)
    k_max = (await driver.state())["k_max"]
    rng = random.Random(7)
    stop = asyncio.Event()
    outputs: list[tuple[int, Tokens]] = []

    async def stream(index: int) -> None:
        while not stop.is_set():
            outputs.append((index, await driver.complete(prompts[index], 128)))

    async def flip() -> None:
        for _ in range(FLIPS):
            if rng.random() < 0.3:
                await driver.put(mode=rng.choice(["speculate", "target-only"]))
            else:
                await driver.put(k=rng.randint(0, k_max))
            await asyncio.sleep(rng.random() * 0.05)
        stop.set()

    await asyncio.gather(flip(), *(stream(index) for index in range(len(prompts))))
    assert len(outputs) >= len(prompts)
    assert [i for i, output in outputs if output != reference[i]] == []
    assert (await driver.state())["version"] >= FLIPS / 2


async def test_target_only_drafts_nothing_and_comes_back(driver: Driver, prompts: Prompts) -> None:
    reference = await driver.batch(prompts)
    await driver.put(mode="target-only")
    before = await driver.counters()
    assert await driver.batch(prompts) == reference
    work = moved(before, await driver.counters())
    assert (work["drafts"], work["generated"] > 0) == (0, True)
    await driver.put(mode="speculate")
    before = await driver.counters()
    assert await driver.batch(prompts) == reference
    assert moved(before, await driver.counters())["drafts"] > 0


async def test_a_change_in_mid_stream_shows_in_the_steps_after_it(
    driver: Driver, prompts: Prompts
) -> None:
    running = asyncio.create_task(driver.batch(prompts, tokens=400))
    await driver.until(lambda state: state["running"] > 0)
    step = (await driver.put(k=1))["step"]
    await running
    steps = (await driver.client.get(f"/v1/specdeck/steps?since={step}")).json()["steps"]
    # The drafts verified in the first step after the change were made before it.
    later = [s for s in steps if s["step"] > step + 1]
    assert {s["k"] for s in steps} == {1}
    assert sum(s["drafted"] for s in later) == sum(s["drafts"] for s in later) > 0


async def test_cold_is_as_right_as_warm_and_recovers_its_acceptance(
    driver: Driver, prompts: Prompts
) -> None:
    async def accepted() -> tuple[list[Tokens], float]:
        before = await driver.counters()
        outputs = await driver.batch(prompts)
        work = moved(before, await driver.counters())
        return outputs, work["accepted"] / work["drafted"]

    reference, healthy = await accepted()
    await driver.put(mode="target-only", fallback="cold")
    assert await driver.batch(prompts) == reference
    back = await driver.put(mode="speculate")
    assert "prefix cache emptied" in back["notices"][0]
    outputs, recovered = await accepted()
    assert outputs == reference
    assert recovered == pytest.approx(healthy, abs=0.1)


async def test_a_lease_runs_out_by_itself(driver: Driver, prompts: Prompts) -> None:
    k_max = (await driver.state())["k_max"]
    await driver.put(k=1, lease_s=0.5)
    await driver.until(lambda state: state["lease"] is None)
    before = await driver.counters()
    await driver.batch(prompts)
    work = moved(before, await driver.counters())
    assert work["drafted"] == k_max * work["drafts"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({"k": 99}, 501), ({"k": "three"}, 400), ({"policy": "best"}, 400), ({"who": "x"}, 400)],
)
async def test_what_is_refused_changes_nothing(
    driver: Driver, body: dict[str, object], status: int
) -> None:
    before = await driver.state()
    reply = await driver.client.put(
        "/v1/specdeck/control",
        json=body,
        headers={"X-Specdeck-Token": driver.token},
    )
    assert reply.status_code == status
    assert set(reply.json()["error"]) == {"code", "message", "remedy"}
    assert (await driver.state())["version"] == before["version"]


async def test_writes_need_the_admin_token(driver: Driver) -> None:
    async with httpx.AsyncClient(base_url=driver.client.base_url) as stranger:
        reply = await stranger.put("/v1/specdeck/control", json={"k": 1})
        assert reply.status_code == 401
        wrong = {"X-Specdeck-Token": "guess"}
        assert (
            await stranger.put("/v1/specdeck/control", json={"k": 1}, headers=wrong)
        ).status_code == 401
