"""What `check --gentle` costs production: its inter-token latency alone and beside the check.

    python -m benchmarks.check_gentle [--seconds 30] [--rounds 3] [--streams 4]

Windows without and with the check follow one another on one engine under the demo's load, so
that a machine whose speed drifts weighs on both. Latencies are taken at the client, from the
production streams alone. Measured with vLLM's default scheduling and with priorities.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

import httpx
from benchmarks.engines import RunningEngine, start_engine, table
from tests.support.checks import finish_check

from specdeck.engine.demo.load import PATIENCE
from specdeck.engine.demo.profiles import ask
from specdeck.engine.divergence.prompts import load_prompts
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.operations.check import ArmPair, CheckedEngine, CheckEvent, CheckOptions
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store

TOKENS = 32
"""Of an answer to the check: a window holds several of its requests and rests."""


class Production:
    """Streams of completions, and the gaps between the pieces of each."""

    def __init__(self, url: str, streams: int) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False)
        self._streams = streams
        self._numbers = itertools.count()
        self.gaps: list[float] = []

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        async with self._http, asyncio.TaskGroup() as group:
            for _ in range(self._streams):
                group.create_task(self._stream())

    async def _stream(self) -> None:
        while True:
            body = ask("predictable", 1, next(self._numbers)).body("demo")
            last: float | None = None
            async with self._http.stream("POST", "/v1/completions", json=body) as reply:
                async for _ in reply.aiter_raw():
                    now = time.monotonic()
                    if last is not None:
                        self.gaps.append(now - last)
                    last = now

    async def window(self, seconds: float) -> list[float]:
        """The gaps of the next seconds."""
        self.gaps.clear()
        await asyncio.sleep(seconds)
        return list(self.gaps)


class Beside:
    """A gentle check that runs while the block does; it goes on where the last one was."""

    def __init__(self, served: RunningEngine, folder: Path) -> None:
        self._served = served
        self._store = folder / "store.sqlite"
        self._task: asyncio.Task[None] | None = None
        self.prompts = 0
        self.seconds = 0.0
        self._began = 0.0

    async def __aenter__(self) -> None:
        self._began = time.monotonic()
        self._task = asyncio.create_task(self._work())

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self.seconds += time.monotonic() - self._began
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _work(self) -> None:
        control = self._served.client()
        asked = CheckOptions(max_tokens=TOKENS, gentle=True)
        try:
            with Store(self._store) as store:
                async with ArmPair(CheckedEngine(control), None, asked) as pair:
                    await finish_check(pair, load_prompts("code"), Checks(store), self._take_event)
        finally:
            await control.close()

    def _take_event(self, event: CheckEvent) -> None:
        if isinstance(event, CheckProgress):
            self.prompts = event.done


async def measure(served: RunningEngine, options: argparse.Namespace) -> list[str]:
    """The row of one engine."""
    production = Production(served.url, options.streams)
    task = asyncio.create_task(production.run())
    alone: list[float] = []
    with_check: list[float] = []
    try:
        await asyncio.sleep(5.0)
        with tempfile.TemporaryDirectory(prefix="specdeck-gentle-") as folder:
            check = Beside(served, Path(folder))
            for _ in range(options.rounds):
                alone += await production.window(options.seconds)
                async with check:
                    with_check += await production.window(options.seconds)
                await asyncio.sleep(1.0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    before, after = quantiles(alone, n=100), quantiles(with_check, n=100)
    row = [f"{(p[n] * 1e3):.1f}" for n in (49, 94) for p in (before, after)]
    pace = f"{60 * check.prompts / check.seconds:.1f}"
    return [*row, f"{after[94] / before[94]:.3f}", pace, f"{len(alone)} + {len(with_check)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--scheduling", nargs="+", default=["fcfs", "priority"])
    options = parser.parse_args()
    rows = []
    for name in options.scheduling:
        with start_engine(scheduling_policy=name) as served:
            rows.append([name, *asyncio.run(measure(served, options))])
        print(rows[-1], file=sys.stderr, flush=True)
    head = ["scheduling", "p50 alone, ms", "p50 with check", "p95 alone, ms", "p95 with check",
            "p95 ratio (budget 1.10)", "prompts checked a minute", "gaps"]  # fmt: skip
    print(f"{options.streams} production streams, {options.rounds} windows of "
          f"{options.seconds:g} s each way\n")  # fmt: skip
    print(table(head, rows))


if __name__ == "__main__":
    main()
