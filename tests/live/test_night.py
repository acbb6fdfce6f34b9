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

LOOKS_S = (12, 24, 48)
"""The longer ones for a machine so slow that few requests end in the others."""
WAITS_S = (0, 6, 12, 24, 48)
"""Before the file is written once more, where few requests have ended."""
CAUSE = "structured_output"
PROMPT_WORD = "sesquipedalian"
"""Found in what is written down only if prompts are."""


class WordedTraffic(Traffic):
    """Each prompt begins with the word."""

    def body(self) -> dict[str, Any]:
        """The next request."""
        found = super().body()
        return found | {"prompt": f"# {PROMPT_WORD}\n{found['prompt']}"}


def read_member(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as file:
        return file.read(name)


def is_untold(why: dict[str, Any]) -> bool:
    """Whether it takes more requests to say of the planted cause what it does."""
    return CAUSE in {one["cause"] for one in why["untold"]}


async def test_a_collapse_is_named_and_goes_into_a_file_that_replays(
    specdeck: Command, engine: LiveEngine, tmp_path: Path
) -> None:
    kept = tmp_path / "night.zip"
    with specdeck.running("record", engine.url, "--quiet"):
        forced = {"structured_outputs": {"json": SCHEMA}}
        async with put_under(engine.url, WordedTraffic(tokens=24, some=0.4, extra=forced)):
            for seconds in LOOKS_S:
                found = await asyncio.to_thread(
                    specdeck, "why", engine.url, "--for", f"{seconds}s", "--json"
                )
                if not is_untold(json.loads(found.stdout)):
                    break
            assert found.returncode == 1, found.stdout
            causes = json.loads(found.stdout)["causes"]
            assert causes[0]["cause"] == CAUSE
            assert causes[0]["figure"]["value"] < 0.5 * causes[0]["figure"]["against"]
            for seconds in WAITS_S:
                await asyncio.sleep(seconds)
                written = await asyncio.to_thread(
                    specdeck, "incident", engine.url, "--last", "5m", "--force", "-o", str(kept)
                )
                assert written.returncode == 0, written.stderr
                if not is_untold(json.loads(read_member(kept, "why.json"))):
                    break  # as many requests finished since the fall as its page needs
            assert "structured output" in read_member(kept, "incident.md").decode()
    elsewhere = Command(tmp_path / "elsewhere")
    replayed = await asyncio.to_thread(elsewhere, "replay", str(kept), "--json")
    assert replayed.returncode == 0, replayed.stderr
    lines = [json.loads(line) for line in replayed.stdout.splitlines()]
    assert len(lines) >= LOOKS_S[0] / 2
    assert any(line.get("acceptance_rate") for line in lines), lines[-1]
    with zipfile.ZipFile(kept) as file:
        for name in file.namelist():
            content = file.read(name)
            assert PROMPT_WORD.encode() not in content, name
            assert engine.token.encode() not in content, name
