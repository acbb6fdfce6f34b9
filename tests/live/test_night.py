"""What an operator asks of an engine in the night: what was it, why, and all of it in a file."""

from __future__ import annotations

import asyncio
import json
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.why import SCHEMA, Traffic, put_under
from tests.support.command import Command
from tests.support.live_engine import LiveEngine

LOOK_S, LONG_LOOK_S = 12, 48
"""The longer one for a machine so slow that few requests end in the other."""
PROMPT_WORD = "sesquipedalian"
"""Found in what is written down only if prompts are."""


class WordedTraffic(Traffic):
    """Each prompt begins with the word."""

    def body(self) -> dict[str, Any]:
        """The next request."""
        found = super().body()
        return found | {"prompt": f"# {PROMPT_WORD}\n{found['prompt']}"}


async def test_a_collapse_is_named_and_goes_into_a_file_that_replays(
    specdeck: Command, engine: LiveEngine, tmp_path: Path
) -> None:
    kept = tmp_path / "night.zip"
    with specdeck.running("record", engine.url, "--quiet"):
        forced = {"structured_outputs": {"json": SCHEMA}}
        async with put_under(engine.url, WordedTraffic(some=0.4, extra=forced)):
            for seconds in (LOOK_S, LONG_LOOK_S):
                why = await asyncio.to_thread(
                    specdeck, "why", engine.url, "--for", f"{seconds}s", "--json"
                )
                if "few_requests" not in why.stdout:
                    break
            assert why.returncode == 1, why.stdout
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
