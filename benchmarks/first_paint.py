"""First paint of `attach` and `replay` beside that of a bare Textual program, in one run.

    python -m benchmarks.first_paint [--rounds 15] [--size 120x40]

Each is started in a pseudo-terminal, in turn, and timed from the start of its process until the
terminal has all of its frame: title, names of the panels and footer. `attach` looks at a small
server that answers at once. The bare program imports Textual and shows one line. CPU is user and
system time of the process: it moves less than the wall clock when the machine is busy. Bytecode is
written by the first start of each, which is not timed, as an installation has it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
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
TITLE = b"specdeck"
FRAME = (TITLE, b"tokens/s", b"position", b"speculation", b"requests", b"events", b"help", b"quit")
"""A word of the title, of each panel's name and of the footer."""
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    """What is started, and the words that its first frame has."""

    name: str
    command: list[str]
    words: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Paint:
    """What one first paint took."""

    wall_s: float
    cpu_s: float


def first_paint(program: Program, home: Path, size: str) -> Paint:
    """From the start of the process to its whole first frame on its terminal."""
    environment = {**os.environ, "SPECDECK_HOME": str(home)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = _cpu_s(), time.monotonic()
    terminal = PseudoTerminal(program.command, environment, size)
    seen = b""
    try:
        # A program that failed would name itself too, but not on the alternate screen.
        while not _shows(seen.partition(b"\x1b[?1049h")[2], program.words):
            left = began + PATIENCE_S - time.monotonic()
            if left <= 0 or not (data := terminal.read(left)):
                raise SystemExit(f"{program.name} painted nothing within {PATIENCE_S:.0f} s")
            seen += data
        wall_s = time.monotonic() - began
    finally:
        terminal.close()
    return Paint(wall_s, _cpu_s() - before)


def _shows(seen: bytes, words: tuple[bytes, ...]) -> bool:
    return all(word in seen for word in words)


def _cpu_s() -> float:
    """CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
        url = f"http://127.0.0.1:{ours.recv()}"
        programs = (
            Program("bare Textual program", [sys.executable, "-c", BARE], (TITLE,)),
            Program("attach", [*specdeck, "attach", url], FRAME),
            Program("replay", [*specdeck, "replay", str(recording)], FRAME),
        )
        for program in programs:  # the first start of each reads files from disk
            first_paint(program, home, options.size)
        paints: dict[str, list[Paint]] = {program.name: [] for program in programs}
        for _ in range(options.rounds):
            for program in programs:
                paints[program.name].append(first_paint(program, home, options.size))
    server.terminate()
    print(f"{options.rounds} rounds in turn, {options.size}. Budget: twice the bare program.\n")
    print(table(HEAD, list(rows(paints))))


HEAD = ["first paint", "median, s", "least, s", "over bare", "CPU, median, s", "CPU over bare"]
"""A ratio is one of medians."""


def rows(paints: dict[str, list[Paint]]) -> Iterator[list[str]]:
    """A line of the table for each program; the first is the bare one."""
    bare_wall = bare_cpu = 0.0
    for name, found in paints.items():
        walls = [paint.wall_s for paint in found]
        wall, cpu = median(walls), median(paint.cpu_s for paint in found)
        bare_wall, bare_cpu = bare_wall or wall, bare_cpu or cpu
        yield [
            name,
            f"{wall:.3f}",
            f"{min(walls):.3f}",
            f"{wall / bare_wall:.2f}",
            f"{cpu:.3f}",
            f"{cpu / bare_cpu:.2f}",
        ]


if __name__ == "__main__":
    main()
