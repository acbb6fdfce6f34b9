"""First paint of `attach` and `replay` beside that of a bare Textual program, in one run.

    python -m benchmarks.first_paint [--rounds 15] [--size 120x40]

Each is started in a pseudo-terminal, in turn, and timed from the start of its process to
the first text on the screen. `attach` looks at a small server that answers at once. The
bare program imports Textual and shows one line.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.console_wire import reading
from benchmarks.engines import table
from benchmarks.many_engines import serve
from tests.support.pseudo_terminal import PseudoTerminal

from specdeck.engine.metrics.recording import reading_as_json

BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("specdeck")

Bare().run()
"""
PATIENCE_S = 60.0


def first_paint_s(command: list[str], home: Path, size: str) -> float:
    """Seconds from the start of the process to "specdeck" on its terminal."""
    began = time.monotonic()
    terminal = PseudoTerminal(command, {**os.environ, "SPECDECK_HOME": str(home)}, size)
    seen = b""
    try:
        # A program that failed would name itself too, but not on the alternate screen.
        while b"specdeck" not in seen.partition(b"\x1b[?1049h")[2]:
            left = began + PATIENCE_S - time.monotonic()
            if left <= 0 or not (data := terminal.read(left)):
                raise SystemExit(f"{command[1:3]} painted nothing within {PATIENCE_S:.0f} s")
            seen += data
        return time.monotonic() - began
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", default="120x40")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        recording = home / "recording.jsonl"
        lines = (json.dumps(reading_as_json(reading(n))) for n in range(60))
        recording.write_text("\n".join(lines) + "\n")
        specdeck = [sys.executable, "-m", "specdeck"]
        commands = {
            "bare Textual program": [sys.executable, "-c", BARE],
            "attach": [*specdeck, "attach", f"http://127.0.0.1:{ours.recv()}"],
            "replay": [*specdeck, "replay", str(recording)],
        }
        for command in commands.values():  # the first start of each reads files from disk
            first_paint_s(command, home, options.size)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                times[name].append(first_paint_s(command, home, options.size))
    server.terminate()
    bare = times["bare Textual program"]
    rows = [
        [
            name,
            f"{median(found):.3f}",
            f"{min(found):.3f}",
            f"{median(one / other for one, other in zip(found, bare, strict=True)):.2f}",
        ]
        for name, found in times.items()
    ]
    print(f"{options.rounds} rounds in turn, {options.size}. Budget: twice the bare program.\n")
    print(table(["first paint", "median, s", "least, s", "over bare, median of rounds"], rows))


if __name__ == "__main__":
    main()
