"""The command line's contract against a real engine."""

import asyncio
import json
from pathlib import Path

import httpx
from tests.support.command import Command
from tests.support.live_engine import Driver, LiveEngine, Prompts

SAMPLE_KEYS = [
    "t", "engine", "up", "model", "method", "k_max", "k", "mode", "policy", "breaker",
    "tokens_per_second", "acceptance_rate", "mean_acceptance_length", "draft_tokens_per_draft",
    "acceptance_per_position", "output_from_drafts", "running", "waiting", "kv_cache_usage",
    "ttft_ms", "itl_ms", "preemptions_per_second", "fingerprint", "system_fingerprint",
    "restarted",
]  # fmt: skip


async def test_watch_prints_samples(
    driver: Driver, specdeck: Command, engine: LiveEngine, prompts: Prompts
) -> None:
    async with driver.bursts(prompts[:2]):
        watched = await asyncio.to_thread(
            specdeck, "watch", engine.url, "--json", "--interval", "2", "--count", "3"
        )
    assert watched.returncode == 0, watched.stderr
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert [sorted(line) for line in lines] == [sorted(SAMPLE_KEYS)] * 3
    k_max = lines[-1]["k_max"]
    assert (lines[-1]["up"], lines[-1]["model"], lines[-1]["method"]) == (
        True, "demo", "draft_model",
    )  # fmt: skip
    assert lines[-1]["draft_tokens_per_draft"] == k_max
    assert lines[-1]["tokens_per_second"] > 0
    assert lines[-1]["fingerprint"].startswith("sd1:")
    assert lines[-1]["system_fingerprint"].startswith("vllm-0.32.0")


async def test_vllms_own_fingerprint_is_the_head_of_what_its_responses_carry(
    driver: Driver, specdeck: Command, engine: LiveEngine
) -> None:
    (line,) = (
        await asyncio.to_thread(specdeck, "watch", engine.url, "--json", "--count", "1")
    ).stdout.splitlines()
    reply = await driver.client.post(
        "/v1/completions", json={"model": "demo", "prompt": "def", "max_tokens": 1}
    )
    sample = json.loads(line)
    whole = f"{sample['system_fingerprint']}-{sample['fingerprint']}"
    assert reply.json()["system_fingerprint"] == whole


async def test_set_proves_what_it_did(
    driver: Driver, specdeck: Command, engine: LiveEngine, prompts: Prompts
) -> None:
    async with driver.bursts(prompts[:2]):
        done = await asyncio.to_thread(
            specdeck, "set", engine.url, "k=3", "--reason", "test", "--json"
        )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    k_max = (await driver.state())["k_max"]
    assert outcome["requested"] == outcome["applied"] == {"k": 3}
    assert outcome["before"] == {"k": k_max}
    assert outcome["observed_k"] == 3.0
    assert outcome["ack_ms"] > 0
    assert outcome["observed_after_ms"] >= outcome["ack_ms"]
    undo = outcome["undo"].split()
    assert undo[0] == "specdeck"
    assert (await asyncio.to_thread(specdeck, *undo[1:])).returncode == 0
    assert (await driver.state())["k"] == k_max


async def test_without_traffic_nothing_is_observed(
    driver: Driver, specdeck: Command, engine: LiveEngine
) -> None:
    done = await asyncio.to_thread(specdeck, "set", engine.url, "k=2", "--json")
    outcome = json.loads(done.stdout)
    assert (outcome["applied"], outcome["observed_k"]) == ({"k": 2}, None)


async def test_a_lease_takes_itself_back(
    driver: Driver, specdeck: Command, engine: LiveEngine
) -> None:
    k_max = (await driver.state())["k_max"]
    done = await asyncio.to_thread(specdeck, "set", engine.url, "k=1", "--lease", "4", "--json")
    assert done.returncode == 0, done.stderr
    assert (await driver.state())["k"] == 1
    await driver.until(lambda state: state["lease"] is None)
    assert (await driver.state())["k"] == k_max


def test_what_the_engine_refuses_is_exit_3(specdeck: Command, engine: LiveEngine) -> None:
    refused = specdeck("set", engine.url, "k=50")
    assert refused.returncode == 3
    assert "k_max" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_nonsense_is_exit_2(specdeck: Command, engine: LiveEngine) -> None:
    for words in (["k=x"], ["speed=3"], ["mode=off"], []):
        assert specdeck("set", engine.url, *words).returncode == 2


def test_ps_and_doctor_know_the_engine(specdeck: Command, engine: LiveEngine) -> None:
    assert engine.url in [one["url"] for one in specdeck.engines()]
    asked = specdeck("doctor", engine.url, "--json")
    assert asked.returncode == 0, asked.stderr
    assert "live_k" in asked.stdout


def test_the_admin_token_is_seen_nowhere(specdeck: Command, engine: LiveEngine) -> None:
    shown = specdeck("ps", "--json").stdout + specdeck("doctor", engine.url, "--json").stdout
    processes = specdeck("set", engine.url, "k=50").stderr
    log = Path(engine.record["log"]).read_text()
    assert engine.token not in shown + processes + log


def test_a_url_that_is_no_engine_is_exit_3(specdeck: Command, engine: LiveEngine) -> None:
    nobody = specdeck("watch", "http://127.0.0.1:9", "--json", "--count", "1")
    assert nobody.returncode == 3
    assert "Traceback" not in nobody.stderr


def test_reading_needs_no_token_and_writing_does(engine: LiveEngine) -> None:
    assert httpx.get(f"{engine.url}/v1/specdeck/state").status_code == 200
    assert httpx.put(f"{engine.url}/v1/specdeck/control", json={"k": 1}).status_code == 401
