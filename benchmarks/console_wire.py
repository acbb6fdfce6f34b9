"""What the console costs a terminal: bytes, CPU, memory and first paint, in one run.

    python -m benchmarks.console_wire [--seconds 40] [--size 120x40]

Starts the console in a pseudo-terminal on a made-up engine at one sample per second: with and
without the driver that leaves out unchanged cells, and with what poor terminals ask for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psutil
from tests.support.engine_state import engine_state
from tests.support.pseudo_terminal import PseudoTerminal

from specdeck.engine.metrics.reading import Gpu, Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import Capability

SETTLED_S = 5.0
"""Painting the first screen is not part of the rate."""

POOR = ("slow", "ascii", "no-color")
"""What a console is asked for on a poor terminal, each with the sparing driver."""

_K = 5
_STATE = engine_state(
    model="target", running=8, fingerprint="sd1:0f3a9c1288aa",
    capabilities=(Capability("live_k", True), Capability("target_only", True)),
)  # fmt: skip


def reading(n: int) -> Reading:
    """Every figure moves from one reading to the next, as under load."""
    swing = math.sin(n / 7) + 0.3 * math.sin(n * 2.1)
    drafts, rate = 150 + 12 * swing, 0.62 + 0.12 * swing
    position = tuple(drafts * rate ** (i + 1) for i in range(_K))
    bounds = (0.005, 0.01, 0.02, 0.04, 0.08, math.inf)
    spread = Histogram(bounds, tuple(100.0 * min(1, (i + 1) / 5 + 0.04 * swing) for i in range(6)))
    window = Window(
        1.0, drafts + sum(position), drafts, drafts * _K, sum(position), position,
        (drafts,) * _K, 0.0, spread, spread,
    )  # fmt: skip
    waiting = float(n % 3)
    sample = Sample(float(n), float(n), "target", running=8.0 - waiting, waiting=waiting,
                    kv_cache_usage=0.3 + 0.1 * swing)  # fmt: skip
    gpu = Gpu(0, "H100", 0.8 + 0.05 * swing, 61 << 30, 80 << 30, 500 + 30 * swing)
    return Reading(time.time(), "http://127.0.0.1:8000", sample, window, _STATE, gpus=(gpu,))


class Steady:
    """An engine that answers at once."""

    name, url, armed, local = "bench", "http://127.0.0.1:8000", True, True

    def arm(self) -> None:
        """It is."""

    async def readings(self, every: float) -> AsyncIterator[Reading]:
        """One after the other."""
        n = 0
        while True:
            yield reading(n)
            n += 1
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Nothing to let go of."""


def child(driver: str) -> None:
    """The console, in the pseudo-terminal."""
    from textual.drivers.linux_driver import LinuxDriver

    from specdeck.console.app import Console
    from specdeck.console.settings import Settings
    from specdeck.console.terminal.driver import SparingDriver

    chosen = LinuxDriver if driver == "plain" else SparingDriver
    settings = Settings(theme="dark", ascii=driver == "ascii", slow=driver == "slow")
    Console([Steady()], settings=settings, driver_class=chosen).run()


@dataclass(frozen=True, slots=True)
class Cost:
    """What one console cost."""

    first_paint_s: float
    """From the start of the process to the first text on the screen."""
    bytes_per_second: float
    frame_peak_bytes: int
    """The most that came within 100 ms once settled: a chart that jumps."""
    cpu_share: float
    """Of one core, once settled."""
    rss_mb: float


def measure(driver: str, seconds: float, size: str) -> Cost:
    """Run a console for that long and count what it writes."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.console_wire", "--child", driver]
    environment = dict(os.environ) | ({"NO_COLOR": "1"} if driver == "no-color" else {})
    terminal = PseudoTerminal(command, environment, size)
    process = psutil.Process(terminal.process.pid)
    chunks: list[tuple[float, int]] = []
    first, busy, seen = 0.0, 0.0, b""
    while (now := time.monotonic() - began) < seconds + SETTLED_S:
        if now >= SETTLED_S and not busy:
            busy = _cpu(process)
        if data := terminal.read(0.05):
            chunks.append((time.monotonic() - began, len(data)))
            seen = (seen + data)[-4096:] if not first else b""
            if not first and b"specdeck" in seen:
                first = time.monotonic() - began
    cost = Cost(
        first,
        sum(size for at, size in chunks if at >= SETTLED_S) / seconds,
        _peak([chunk for chunk in chunks if chunk[0] >= SETTLED_S]),
        (_cpu(process) - busy) / seconds,
        process.memory_info().rss / 1e6,
    )
    terminal.close()
    return cost


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _peak(chunks: list[tuple[float, int]]) -> int:
    return max((sum(s for a, s in chunks if at <= a < at + 0.1) for at, _ in chunks), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    sparing = measure("sparing", options.seconds, options.size)
    plain = measure("plain", options.seconds, options.size)
    poor = [(name, measure(name, options.seconds, options.size)) for name in POOR]
    for name, cost in (("sparing", sparing), ("textual", plain), *poor):
        print(json.dumps({"driver": name, "size": options.size, **round_figures(cost)}))
    ratio = sparing.bytes_per_second / max(1.0, plain.bytes_per_second)
    print(json.dumps({"bytes_ratio": round(ratio, 3)}))


def round_figures(cost: Cost) -> dict[str, float]:
    """The figures to three digits."""
    return {name: round(getattr(cost, name), 3) for name in cost.__slots__}


if __name__ == "__main__":
    main()
