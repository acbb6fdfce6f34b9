"""Real engines for the benchmarks: started, driven by the demo's load, counted, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.client.token import admin_token
from specdeck.engine.config.loader import load as load_config
from specdeck.engine.demo.load import Load, open_load_client, run
from specdeck.engine.demo.profiles import PROFILES
from specdeck.engine.launch.command import build_argv, build_environment
from specdeck.engine.launch.launcher import deepen_target
from specdeck.engine.launch.ports import find_free
from specdeck.engine.metrics.page import parse
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window, between
from specdeck.engine.paths import locations

DEMO = Path(__file__).parents[1] / "sample_configs" / "demo.yaml"
WARM_S = 2.0
"""Load before a measurement begins."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine that runs for a benchmark."""

    url: str
    token_file: Path

    def client(self) -> EngineClient:
        """For its pages and its control."""
        return open_client(self.url, token=admin_token({}, self.token_file))


@contextlib.contextmanager
def start_engine(
    *, plugin: bool = True, path: Path = DEMO, **arguments: Any
) -> Iterator[RunningEngine]:
    """The engine of a config, with or without specdeck's plugin; ended with its workers.

    `arguments` replace engine arguments of the config.
    """
    config = load_config(path)
    if config.deepen is not None:
        config = deepen_target(config, locations(os.environ))
    port = find_free("127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="specdeck-bench-") as folder:
        token_file = Path(folder) / "token"
        token_file.write_text("benchmark")
        token_file.chmod(0o600)
        variables = build_environment(config, os.environ, token_file=token_file)
        if not plugin:
            variables["VLLM_PLUGINS"] = ""
        command = build_argv(config, python=sys.executable, host="127.0.0.1", port=port)
        for name, value in arguments.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env=variables, stdout=log, stderr=log, start_new_session=True
            )
            # A time limit that ends the benchmark must end its engine too.
            before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
            try:
                _ready(process, f"http://127.0.0.1:{port}", Path(log.name))
                yield RunningEngine(f"http://127.0.0.1:{port}", token_file)
            finally:
                end_process(process)
                signal.signal(signal.SIGTERM, before)


def _ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"the engine ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    sys.exit("the engine was not ready in 300 s")


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that leads its session, with its workers; kills what stays."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


@contextlib.asynccontextmanager
async def put_under_load(
    url: str, profile: str, streams: int, *, seed: int = 1
) -> AsyncIterator[Load]:
    """Load on the engine while the block runs, warm when it begins."""
    async with open_load_client(url, headers={}) as http:
        load = Load(PROFILES[profile], streams, seed=seed)
        task = asyncio.create_task(run(load, http))
        try:
            await asyncio.sleep(WARM_S)
            yield load
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def sample(engine: EngineClient) -> Sample:
    """The engine's counters now."""
    return parse(await engine.page(), t=time.time(), at=time.monotonic())


async def window(engine: EngineClient, seconds: float) -> Window:
    """The engine's work over the next seconds."""
    older = await sample(engine)
    await asyncio.sleep(seconds)
    found = between(older, await sample(engine))
    assert found is not None, "the engine was restarted in mid-measurement"
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def middle(values: list[float]) -> float:
    """The median."""
    return sorted(values)[len(values) // 2]
