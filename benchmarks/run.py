"""Runs the benchmarks and writes RESULTS.md: what was run, on what, and what it printed.

    python -m benchmarks.run [NAME...]

Named ones replace their own sections and leave the others as they are.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
BENCHMARKS = {
    "parse_page": "A metrics page of 70 KB to a Window",
    "many_engines": "Following 32 engines",
    "console_wire": "The console: bytes, CPU, memory, first paint",
    "first_paint": "First paint, and that of a bare Textual program",
    "black_box": "A day in a black box, and writers that are killed",
    "control_latency": "A change of k under load",
    "ranks": "Changes of k on engines of several ranks",
    "overhead": "An engine with plugin and console, and without",
    "demo_models": "The demo's pair: acceptance, and throughput at every k",
    "policies": "Policies against every fixed k on the demo engine",
    "calibration": "Dummy steps beside real ones of the same shape",
    "policy_overhead": "A policy with nothing to change, and stock vLLM",
    "plugin_step_cost": "What a step costs the plugin",
    "plugin_pins": "What pinned requests that wait cost",
    "plugin_cohorts": "What telling requests apart by kind costs",
    "plugin_looks": "What a look at the engine costs it",
    "policy_simulation": "Policies and breaker on recorded steps",
    "policy_bound": "What is lost at least where text shifts",
    "auto_soak": "Greedy outputs under auto with flips, trips and trials",
    "check_truth": "The check on engines whose truth is known",
    "check_noise": "The check on engines as noisy as a GPU",
    "check_power": "What the verdicts of a check find, simulated",
    "check_speed": "A check, and its requests from a plain client",
    "check_gentle": "Production's inter-token latency beside a gentle check",
    "check_memory": "What a check holds in memory",
    "fingerprint_cost": "What a fingerprint costs",
    "fingerprint_engines": "Names over restarts with no change",
    "fingerprint_behaviour": "The behaviour probe, idle, under load and in another dtype",
    "fingerprint_noise": "What verify says of noisy engines, simulated",
    "fingerprint_stamping": "Responses with the live name, and without",
    "soak": "An hour of consoles, bad links and killed engines",
}
WHEN_NAMED = {"check_noise", "check_power", "soak"}
"""Those that take an hour."""
HEAD = """# Results

Written by `make bench` (`python -m benchmarks.run`), as measured, budgets missed or not.
The budgets are in docs/contributing.md. Machines are shared and noisy: compare what one run has
side by side, not seconds of different runs.
"""


def machine() -> str:
    """The processor, its cores, and how busy it was."""
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{name[1] if name else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f} at the start"
    )


def section(name: str) -> str:
    """Run one benchmark; its output as Markdown."""
    about = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {machine()}"
    print(f"{name}: {BENCHMARKS[name]} …", file=sys.stderr, flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        print(ran.stdout, file=sys.stderr)
        sys.exit(f"{name} failed with {ran.returncode}")
    lines = ran.stdout.strip()
    body = lines if "|" in lines else f"```\n{lines}\n```"
    took = f"{time.monotonic() - began:.0f} s"
    title = f"## {BENCHMARKS[name]}"
    return f"{title}\n\n`python -m benchmarks.{name}` · {about} · took {took}\n\n{body}\n"


def put_section(text: str, name: str, made: str) -> str:
    """RESULTS.md with one section made anew in its place; all else stays as it is.

    A benchmark's section has its title, or else its command first. A new one follows that of the
    benchmark before it.
    """
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    place = _find(parts, name)
    if place is not None:
        parts[place] = made
    else:
        before = list(BENCHMARKS)[: list(BENCHMARKS).index(name)]
        places = [found for each in before if (found := _find(parts, each)) is not None]
        parts.insert(places[-1] + 1 if places else len(parts), made)
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _find(parts: list[str], name: str) -> int | None:
    """Which part is a benchmark's."""
    titled = [n for n, part in enumerate(parts) if part.startswith(f"## {BENCHMARKS[name]}\n")]
    command = re.compile(r"`python -m benchmarks\.(\w+)")
    by_command = [
        n for n, part in enumerate(parts) if (match := command.search(part)) and match[1] == name
    ]
    return next(iter([*titled, *by_command]), None)


def main() -> None:
    wanted = sys.argv[1:] or [name for name in BENCHMARKS if name not in WHEN_NAMED]
    if unknown := set(wanted) - set(BENCHMARKS):
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}: choose from {', '.join(BENCHMARKS)}")
    for name in wanted:
        text = RESULTS.read_text() if RESULTS.exists() else HEAD
        RESULTS.write_text(put_section(text, name, section(name)))


if __name__ == "__main__":
    main()
