"""What an operator asks of an engine in the night: what was it, why, and all of it in a file."""

from __future__ import annotations

import asyncio
import json
import random
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.command import Command
from tests.support.live_engine import Driver, LiveEngine

from specdeck.engine.demo import corpus

STREAMS, TOKENS, LOOK_S = 6, 48, 12
WORDS = ["".join(random.Random(n).choices("bcdfghjklmnpqrstvwxz", k=7)) for n in range(12)]
SCHEMA = {
    "type": "object", "properties": {word: {"type": "boolean"} for word in WORDS},
    "required": WORDS, "additionalProperties": False,
}  # fmt: skip
"""Names that the draft cannot guess and the grammar forces."""
PROMPT_WORD = "sesquipedalian"
"""Found in what is written down only if prompts are."""


@asynccontextmanager
async def traffic(driver: Driver, share: float) -> AsyncIterator[None]:
    """Boilerplate to go on with, a share of it forced into the schema, while the block runs."""
    draw = random.Random(7)
    kinds = [kind for kind in corpus.CODE if kind is not corpus.counting]

    async def stream() -> None:
        while True:
            seed = corpus.FIRST_UNSEEN_SEED + draw.randrange(10**6)
            text = f"# {PROMPT_WORD}\n{corpus.write_idioms(draw.choice(kinds), seed)[:160]}"
            body = {"model": "demo", "prompt": text, "max_tokens": TOKENS, "temperature": 0,
                    "ignore_eos": True}  # fmt: skip
            if draw.random() < share:
                body["structured_outputs"] = {"json": SCHEMA}
            reply = await driver.client.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text

    tasks = [asyncio.create_task(stream()) for _ in range(STREAMS)]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_collapse_is_named_and_goes_into_a_file_that_replays(
    specdeck: Command, engine: LiveEngine, driver: Driver, tmp_path: Path
) -> None:
    kept = tmp_path / "night.zip"
    with specdeck.running("record", engine.url, "--quiet"):
        async with traffic(driver, 0.4):
            why = await asyncio.to_thread(
                specdeck, "why", engine.url, "--for", f"{LOOK_S}s", "--json"
            )
            assert why.returncode == 1, why.stderr
            causes = json.loads(why.stdout)["causes"]
            assert causes[0]["cause"] == "structured_output"
            assert causes[0]["figure"]["value"] < 0.5 * causes[0]["figure"]["against"]
            written = await asyncio.to_thread(
                specdeck, "incident", engine.url, "--last", "5m", "-o", str(kept)
            )
            assert written.returncode == 0, written.stderr
    elsewhere = Command(tmp_path / "elsewhere")
    replayed = await asyncio.to_thread(elsewhere, "replay", str(kept), "--json")
    assert replayed.returncode == 0, replayed.stderr
    lines = [json.loads(line) for line in replayed.stdout.splitlines()]
    assert len(lines) >= LOOK_S / 2
    assert any(line.get("acceptance_rate") for line in lines), lines[-1]
    with zipfile.ZipFile(kept) as file:
        page = file.read("incident.md").decode()
        assert "structured output" in page
        for name in file.namelist():
            content = file.read(name)
            assert PROMPT_WORD.encode() not in content, name
            assert engine.token.encode() not in content, name
