"""What stands between a start and the console's first frame, counted instead of timed."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.pilot import settle
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.readings import reading

from specdeck.engine.metrics.recording import reading_as_json

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole

PROGRAM = """
import json, os, sys
from pathlib import Path
from specdeck.console.cli.main import main
from specdeck.console.terminal.driver import SparingDriver
from textual.css.stylesheet import Stylesheet

styled = 0
apply, write = Stylesheet.apply, SparingDriver.write

def count(self, node, **more):
    global styled
    styled += 1
    apply(self, node, **more)

def write_frame(self, data):
    write(self, data)
    if all(word in data for word in ("specdeck", "speculation", "events", "quit")):
        found = {"modules": list(sys.modules), "styled": styled}
        Path(os.environ["FOUND"]).write_text(json.dumps(found))
        os._exit(0)

Stylesheet.apply, SparingDriver.write = count, write_frame
main()
"""
HEAVY = {
    "httpx", "numpy", "prometheus_client", "psutil", "pydantic", "pynvml", "scipy", "sqlite3",
    "vllm", "specdeck.engine.operations.change", "specdeck.engine.policy.parameters",
    "specdeck.engine.protocol.tuning",
}  # fmt: skip
MOST_MODULES = 92
"""Of specdeck's own; there are three times as many. A slotted dataclass takes 0.4 ms to import."""
MOST_STYLED = 150
"""Nodes that Textual styles; it was 502 while each line had nine tones of its own."""
PATIENCE_S = 60.0


def run(command: list[str], home: Path, **environment: str) -> tuple[int | None, bytes]:
    """The exit code of a command on a terminal, and what it wrote."""
    terminal = PseudoTerminal(
        [sys.executable, *command],
        {**os.environ, "SPECDECK_HOME": str(home), **environment},
    )
    seen, end = b"", time.monotonic() + PATIENCE_S
    try:
        while terminal.process.poll() is None and time.monotonic() < end:
            seen += terminal.read(0.1)
        while data := terminal.read(0.1):
            seen += data
        return terminal.process.poll(), seen
    finally:
        terminal.close()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "recording.jsonl"
    path.write_text(json.dumps(reading_as_json(reading(0))) + "\n")
    return path


@pytest.mark.parametrize("command", ["attach", "replay"])
def test_what_comes_before_the_first_frame(command: str, recording: Path, tmp_path: Path) -> None:
    subject = "http://127.0.0.1:9" if command == "attach" else str(recording)
    place = tmp_path / "found.json"
    code, seen = run(["-c", PROGRAM, command, subject], tmp_path, FOUND=str(place))
    assert code == 0, seen
    found = json.loads(place.read_text())
    modules = set(found["modules"])
    assert modules & HEAVY == set()
    assert len([name for name in modules if name.startswith("specdeck.")]) <= MOST_MODULES
    assert found["styled"] <= MOST_STYLED


async def test_garbage_is_looked_for_again_after_the_first_frame(
    kit: type[Kit], console: MakeConsole
) -> None:
    gc.disable()
    try:
        async with console(kit.engine([])).run_test() as pilot:
            await settle(pilot)
            assert gc.isenabled()
    finally:
        gc.enable()


def test_an_engine_that_does_not_answer_closes_the_console(tmp_path: Path) -> None:
    code, seen = run(["-m", "specdeck", "attach", "http://127.0.0.1:9"], tmp_path)
    assert code == 3
    shown, _, said = seen.rpartition(b"\x1b[?1049l")
    assert b"specdeck" in shown
    assert b"specdeck: http://127.0.0.1:9 refuses connections: is the engine running there?" in said
