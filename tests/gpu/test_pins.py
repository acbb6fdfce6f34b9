"""One request's own k on a real engine, proven by the response's own metrics."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.support.live_engine import Driver, Prompts


async def completed(
    driver: Driver, prompt: Sequence[int], **xargs: int
) -> tuple[list[int], dict[str, int]]:
    reply = await driver.client.post(
        "/v1/completions",
        json={
            "model": "demo",
            "prompt": prompt,
            "max_tokens": 96,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            **({"vllm_xargs": xargs} if xargs else {}),
        },
    )
    assert reply.status_code == 200, reply.text
    body = reply.json()
    return body["choices"][0]["token_ids"], body["metrics"]["speculative_decoding"]


async def test_pinned_and_free_requests_share_a_batch(driver: Driver, prompts: Prompts) -> None:
    k_max = (await driver.state())["k_max"]
    assert any(
        c["name"] == "request_k" and c["available"] for c in (await driver.state())["capabilities"]
    )
    free = await asyncio.gather(*(completed(driver, prompt) for prompt in prompts))
    pins = [0, 0, 1, 2, k_max, k_max, None, None]
    mixed = await asyncio.gather(
        *(
            completed(driver, prompt, **({} if k is None else {"specdeck_k": k}))
            for prompt, k in zip(prompts, pins, strict=True)
        )
    )
    assert [ids for ids, _ in mixed] == [ids for ids, _ in free]
    for k, (_, metrics) in zip(pins, mixed, strict=True):
        wanted = k_max if k is None else k
        assert metrics["num_draft_tokens"] == wanted * metrics["num_spec_steps"]
    assert (await driver.state())["pinned"] == 0


@pytest.mark.parametrize("k", [-1, 99, "0", 1.5])
async def test_a_pin_that_cannot_be_is_a_400(driver: Driver, k: object) -> None:
    reply = await driver.client.post(
        "/v1/completions",
        json={"model": "demo", "prompt": "x", "max_tokens": 1, "vllm_xargs": {"specdeck_k": k}},
    )
    assert reply.status_code == 400
    assert "specdeck_k" in reply.text


async def test_chat_can_be_pinned_too(driver: Driver) -> None:
    reply = await driver.client.post(
        "/v1/chat/completions",
        json={
            "model": "demo",
            "messages": [{"role": "user", "content": "def add(a, b):"}],
            "max_tokens": 32,
            "temperature": 0,
            "vllm_xargs": {"specdeck_k": 0},
        },
    )
    assert reply.status_code == 200, reply.text
    assert reply.json()["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0
