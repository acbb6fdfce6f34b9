"""Breaker, trials, parameters and exact names on a real engine."""

import asyncio
import json
import signal
import subprocess
import time
from typing import Any

import psutil
import pytest
from tests.support.command import Command
from tests.support.live_engine import TOKENS, Driver, LiveEngine, Prompts, Tokens, until

from specdeck.engine.protocol.messages import PREFIX

WAIT_S = 300
"""As long as a command beside a loaded engine may take on a slow machine."""


async def changed(driver: Driver, console: "subprocess.Popen[str]") -> None:
    """Returns once the trial that `console` asked for has made its change."""
    try:
        state = await driver.until(
            lambda state: state["trial"] == "changed" or console.poll() is not None
        )
    except TimeoutError:
        process = psutil.Process(console.pid)
        pytest.fail(f"{process.status()} on CPU {process.cpu_num()}, {process.cpu_times()}")
    assert state["trial"] == "changed", (await driver.tuning()).trial


_references: dict[int, list[Tokens]] = {}
"""By the engine's process."""


@pytest.fixture
async def reference(engine: LiveEngine, driver: Driver, prompts: Prompts) -> list[Tokens]:
    """What the target says alone."""
    if engine.pid not in _references:
        await driver.put(mode="target-only")
        _references[engine.pid] = await driver.batch(prompts)
        await driver.put(mode="speculate")
    return _references[engine.pid]


async def test_the_breaker_opens_by_hand_while_streams_run(
    driver: Driver, prompts: Prompts, reference: list[Tokens]
) -> None:
    name = (await driver.state())["fingerprint"]
    async with driver.streams(prompts) as done:
        await driver.put(breaker="open", reason="a check found a breach")
        state = await driver.state()
        assert (state["breaker"], state["k"]) == ("open", 0)
        assert state["fingerprint"] != name
        # The step under way may still draft; the ones after the next do not.
        step = state["step"]
        await driver.until(lambda state: state["step"] > step + 2)
        before = await driver.counters()
        step = (await driver.state())["step"]
        await driver.until(lambda state: state["step"] > step + 40)
        after = await driver.counters()
        assert after["generated"] > before["generated"]
        assert after["drafts"] == before["drafts"]
        breaker = (await driver.tuning()).breaker
        assert (breaker.held, breaker.reason) == (True, "a check found a breach")
        assert breaker.next_probe_s is None
        await driver.put(breaker="closed")
        state = await driver.state()
        assert (state["breaker"], state["k"]) == ("closed", state["k_max"])
        assert state["fingerprint"] == name
        step = state["step"]
        await driver.until(lambda state: state["step"] > step + 20)
    assert done
    assert all(output == reference[number] for number, output in done)


async def test_a_trial_judges_itself_and_greedy_outputs_stay(
    driver: Driver, prompts: Prompts, reference: list[Tokens]
) -> None:
    async with driver.streams(prompts) as done:
        await driver.put(k=1, judge=True, lease_s=60, trial_s=4)
        tuning = await until(
            driver.tuning, lambda tuning: tuning.trial is None or tuning.trial.over
        )
        trial = tuning.trial
        assert trial is not None
        assert trial.state in ("kept", "reverted")
        assert trial.comparison is not None
        assert trial.reason
        state = await driver.state()
        assert state["k"] == (1 if trial.state == "kept" else state["k_max"])
    assert all(output == reference[number] for number, output in done)


@pytest.mark.parametrize("knob", ["k=2", "mode=target-only", "policy=threshold"])
async def test_a_killed_console_gives_the_engine_back_within_the_lease(
    driver: Driver, specdeck: Command, engine: LiveEngine, prompts: Prompts, knob: str
) -> None:
    before = await driver.state()
    async with driver.bursts(prompts[:2]):
        with specdeck.running("set", engine.url, knob, "--trial", "15") as console:
            await changed(driver, console)
        killed = time.time()
        state = await driver.until(lambda state: state["trial"] is None)
        assert state["last_change"]["t"] - killed < 11.0  # the engine's own time
        assert [state[name] for name in ("k", "mode", "policy")] == [
            before[name] for name in ("k", "mode", "policy")
        ]
        trial = (await driver.tuning()).trial
        assert trial is not None
        assert trial.reason == "the lease was not renewed"


async def test_an_interrupted_trial_takes_its_change_back_at_once(
    driver: Driver, specdeck: Command, engine: LiveEngine, prompts: Prompts
) -> None:
    async with driver.bursts(prompts[:2]):
        with specdeck.running("set", engine.url, "k=2", "--trial", "15") as console:
            await changed(driver, console)
            console.send_signal(signal.SIGINT)
            _, said = await asyncio.to_thread(console.communicate, timeout=WAIT_S)
        assert console.returncode == 130, said
        state = await driver.state()
        assert (state["trial"], state["k"]) == (None, state["k_max"])
        trial = (await driver.tuning()).trial
        assert trial is not None
        assert trial.reason == "interrupted"  # no lease had to run out


async def test_exact_requests_draft_nothing_beside_others_that_do(
    driver: Driver, prompts: Prompts, reference: list[Tokens]
) -> None:
    async def ask(model: str, number: int, **more: Any) -> Any:
        body = {
            "model": model, "prompt": prompts[number], "max_tokens": TOKENS, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True, **more,
        }  # fmt: skip
        return await driver.client.post("/v1/completions", json=body)

    before = await driver.state()
    await driver.put(k=3)
    replies = await asyncio.gather(*(ask("demo-exact", number) for number in range(4)))
    after = await driver.state()
    assert after["drafts"] == before["drafts"]
    assert after["exact_requests"] - before["exact_requests"] == 4
    assert after["exact_tokens"] - before["exact_tokens"] == 4 * TOKENS
    mixed = await asyncio.gather(
        *(ask("demo-exact" if number % 2 else "demo", number) for number in range(8))
    )
    assert (await driver.state())["drafts"] > after["drafts"]
    for number, reply in [*enumerate(replies), *enumerate(mixed)]:
        assert tuple(reply.json()["choices"][0]["token_ids"]) == reference[number]
    refused = await ask("demo-exact", 0, vllm_xargs={"specdeck_k": 2})
    assert refused.status_code == 400
    assert "target-only" in refused.text
    exact = (await driver.tuning()).exact
    assert exact.models == ("demo-exact",)
    assert exact.running == 0


async def test_exact_chat_is_pinned_and_says_so(driver: Driver) -> None:
    before = await driver.state()
    body = {
        "model": "demo-exact", "max_tokens": 32, "temperature": 0,
        "messages": [{"role": "user", "content": "hello"}],
    }  # fmt: skip
    reply = await driver.client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    after = await driver.state()
    assert after["drafts"] == before["drafts"]
    assert reply.json()["system_fingerprint"].endswith("+k0")


async def test_parameters_change_live_and_come_back(
    driver: Driver, specdeck: Command, engine: LiveEngine, prompts: Prompts
) -> None:
    set_ = await asyncio.to_thread(
        specdeck, "set", engine.url, "policy=threshold", "threshold.max_draft_length=3",
        "threshold.initial_draft_length=3", "breaker.automatic=never", "--json",
    )  # fmt: skip
    assert set_.returncode == 0, set_.stderr
    since = (await driver.state())["step"]
    await driver.batch(prompts, tokens=96)
    reply = await driver.client.get(f"{PREFIX}/steps?since={since + 3}")
    assert {step["k"] for step in reply.json()["steps"]} <= {2, 3}
    bad = await asyncio.to_thread(
        specdeck, "set", engine.url, "threshold.min_draft_length=9", "k=1", "--json"
    )
    assert bad.returncode == 2
    assert "is more than max_draft_length=3" in bad.stderr
    assert (await driver.state())["policy"] == "threshold"
    undo = json.loads(set_.stdout)["undo"].split()[1:]
    undone = await asyncio.to_thread(specdeck, *undo)
    assert undone.returncode == 0, undone.stderr
    state = await driver.state()
    assert (state["policy"], state["k"]) == ("fixed", state["k_max"])
    values = {each.name: each.value for each in (await driver.tuning()).parameters}
    assert values["threshold.max_draft_length"] == 16
    assert values["breaker.automatic"] == "policy"
