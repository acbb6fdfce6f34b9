"""Fingerprints of a real engine: live in every response, pinned, verified, explained."""

import asyncio
import json
import subprocess
import sys

import pytest
from tests.support.command import Command
from tests.support.live_engine import Driver, LiveEngine

SNIPPET = """
import sys
from openai import OpenAI

url, expected = sys.argv[1:]
client = OpenAI(base_url=f"{url}/v1", api_key="none")
resp = client.chat.completions.create(
    model="demo", messages=[{"role": "user", "content": "def f"}], temperature=0, max_tokens=4
)
assert resp.system_fingerprint == expected, f"decode path drift: {resp.system_fingerprint}"
"""
"""The assertion of a CI job, with the official client and nothing of specdeck's."""


def asserted(url: str, expected: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", SNIPPET, url, expected], capture_output=True, text=True, timeout=120
    )


async def fingerprints(driver: Driver) -> dict[str, str]:
    """What each kind of response carries."""
    chat = {"model": "demo", "messages": [{"role": "user", "content": "def f"}], "max_tokens": 3}
    text = {"model": "demo", "prompt": "def f", "max_tokens": 3}
    found = {}
    for name, path, body in (("chat", "chat/completions", chat), ("text", "completions", text)):
        reply = await driver.client.post(f"/v1/{path}", json=body)
        found[name] = reply.json()["system_fingerprint"]
        for usage in (False, True):
            options = {"stream": True, "stream_options": {"include_usage": usage}}
            reply = await driver.client.post(f"/v1/{path}", json={**body, **options})
            chunks = [json.loads(x[6:]) for x in reply.text.splitlines() if x.startswith("data: {")]
            (found[f"{name} stream {usage}"],) = {
                chunk["system_fingerprint"] for chunk in chunks if chunk.get("system_fingerprint")
            }
    return found


async def test_every_kind_of_response_carries_the_path_of_that_moment(driver: Driver) -> None:
    before = await driver.state()
    own, path = before["system_fingerprint"], before["fingerprint"]
    assert set((await fingerprints(driver)).values()) == {f"{own}-{path}"}
    await driver.put(k=1)
    after = (await driver.state())["fingerprint"]
    assert after != path
    found = await fingerprints(driver)
    assert len(found) == 6
    assert set(found.values()) == {f"{own}-{after}"}


async def test_a_pinned_request_says_so(driver: Driver) -> None:
    state = await driver.state()
    expected = f"{state['system_fingerprint']}-{state['fingerprint']}+k0"
    body = {"model": "demo", "max_tokens": 3, "vllm_xargs": {"specdeck_k": 0}, "stream": True}
    chat = {**body, "messages": [{"role": "user", "content": "def f"}]}
    for path, asked in (("completions", {**body, "prompt": "def f"}), ("chat/completions", chat)):
        streamed = await driver.client.post(f"/v1/{path}", json=asked)
        assert f'"{expected}"' in streamed.text
        whole = await driver.client.post(f"/v1/{path}", json={**asked, "stream": False})
        assert whole.json()["system_fingerprint"] == expected


async def test_a_lease_that_runs_out_brings_the_name_back(driver: Driver) -> None:
    before = (await driver.state())["fingerprint"]
    await driver.put(k=1, lease_s=0.3)
    assert (await driver.state())["fingerprint"] != before
    await driver.until(lambda state: state["lease"] is None)
    await driver.complete([300], 2)
    assert (await fingerprints(driver))["text"].endswith(before)


async def test_an_unmodified_openai_client_passes_and_fails_accordingly(
    driver: Driver, engine: LiveEngine
) -> None:
    state = await driver.state()
    expected = f"{state['system_fingerprint']}-{state['fingerprint']}"
    passed = await asyncio.to_thread(asserted, engine.url, expected)
    assert passed.returncode == 0, passed.stderr
    await driver.put(k=2)
    failed = await asyncio.to_thread(asserted, engine.url, expected)
    assert failed.returncode == 1
    assert "AssertionError: decode path drift: vllm-" in failed.stderr


async def test_a_pin_fails_when_k_moves_and_names_it(
    driver: Driver, specdeck: Command, engine: LiveEngine
) -> None:
    async def cli(*words: str) -> "subprocess.CompletedProcess[str]":
        return await asyncio.to_thread(specdeck, "fingerprint", *words)

    k_max = (await driver.state())["k_max"]
    assert (await cli("pin", engine.url)).returncode == 0
    assert (await cli("verify", engine.url)).returncode == 0
    await driver.put(k=k_max - 1)
    failed = await cli("verify", engine.url)
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout.splitlines()[:2] == [
        f"knob changed: k {k_max} → {k_max - 1}",
        "vLLM's own fingerprint did not move",
    ]
    await driver.put(k=k_max)
    assert (await cli("verify", engine.url)).returncode == 0


async def test_all_facts_of_the_demo_engine_are_known(
    driver: Driver, specdeck: Command, engine: LiveEngine
) -> None:
    shown = await asyncio.to_thread(specdeck, "fingerprint", "show", engine.url, "--json")
    found = json.loads(shown.stdout)
    assert found["partial"] == []
    assert found["stamped"] is True
    facts = found["facts"]
    assert facts["config"]["speculative"]["num_speculative_tokens"] == facts["live"]["k"]
    assert set(facts["model"]) == {"target", "draft", "tokenizer"}
    assert "torch/lib/libtorch_cpu.so" in facts["runtime"]["libraries"]
    assert any(name.startswith("vllm/_C") for name in facts["runtime"]["libraries"])
    assert set(facts["runtime"]["code"]) >= {"vllm"}
    assert facts["runtime"]["attention"]
    assert engine.token not in shown.stdout
    assert "TOKEN_FILE" not in shown.stdout


async def test_gathering_facts_holds_the_engine_for_no_time_to_speak_of(driver: Driver) -> None:
    """Twice the budget of 50 ms: a worker that the engine core waits for may have no CPU."""
    reply = (await driver.ask("GET", "facts")).json()
    assert reply["progress"]["finished"]
    assert reply["progress"]["held_engine_ms"] <= 100


@pytest.mark.long
def test_weights_swapped_in_place_are_the_models_change(
    specdeck: Command, copied: LiveEngine
) -> None:
    pinned = specdeck("fingerprint", "pin", copied.url)
    assert pinned.returncode == 0, pinned.stderr
    copied.stop()
    weights = copied.config.parent / "models" / "draft" / "model.safetensors"
    with weights.open("r+b") as file:  # the last value of the last tensor
        file.seek(-1, 2)
        (byte,) = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([byte ^ 0x01]))
    copied.restart()
    failed = specdeck("fingerprint", "verify", copied.url)
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout.splitlines()[:2] == [
        "model changed: draft",
        "vLLM's own fingerprint did not move",
    ]
