"""Measures the demo's pair on real engines: acceptance per profile, and what each k is worth.

    python benchmarks/demo_models.py                    starts an engine for each k, in turn
    python benchmarks/demo_models.py --url URL          acceptance on an engine that runs already

Every throughput is a ratio to target-only, measured in the same run on the same machine; the
target-only engine runs first and last, and the spread between the two is printed as the noise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from specdeck.engine.demo.deepen import DEMO_LAYERS, deepened
from specdeck.engine.demo.load import PATIENCE, Load, run
from specdeck.engine.demo.profiles import PROFILES

MODELS = Path(__file__).parent.parent / "sample_configs" / "models"
STREAMS = (1, 4, 8)
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_PLUGINS": "",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What an engine did over one stretch of load."""

    tokens_per_second: float
    positions: tuple[float, ...]
    """Share of drafts whose token at this position was accepted; empty without drafts."""
    failed: int


Page = dict[tuple[str, str], float]


async def page(client: httpx.AsyncClient) -> Page:
    """The engine's counters, by name and position label."""
    text = (await client.get("/metrics")).raise_for_status().text
    families = (f for f in text_string_to_metric_families(text) if f.name.startswith("vllm:"))
    samples = (sample for family in families for sample in family.samples)
    return {(s.name.removeprefix("vllm:"), s.labels.get("position", "")): s.value for s in samples}


def between(older: Page, newer: Page, seconds: float, failed: int) -> Measured:
    """The work between two pages."""

    def grown(name: str, position: str = "") -> float:
        return newer.get((name, position), 0.0) - older.get((name, position), 0.0)

    drafts = grown("spec_decode_num_drafts_total")
    name = "spec_decode_num_accepted_tokens_per_pos_total"
    places = sorted(int(label) for found, label in newer if found == name)
    positions = tuple(grown(name, str(n)) / drafts for n in places) if drafts else ()
    return Measured(grown("generation_tokens_total") / seconds, positions, failed)


async def measure(url: str, profile: str, streams: int, *, seconds: float, warm: float) -> Measured:
    """Load the engine, and measure once the load has been on for `warm` seconds."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as client:
        load = Load(PROFILES[profile], streams, seed=streams)
        task = asyncio.create_task(run(load, client))
        try:
            await asyncio.sleep(warm)
            began, older = time.monotonic(), await page(client)
            await asyncio.sleep(seconds)
            newer, passed = await page(client), time.monotonic() - began
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return between(older, newer, passed, load.failed)


@contextlib.contextmanager
def engine(target: Path, draft: Path, k: int, options: argparse.Namespace) -> Iterator[str]:
    """A real engine drafting k tokens (0: none), ended with all its workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(target)]
    command += ["--served-model-name", "demo", "--enforce-eager", "--dtype", options.dtype]
    command += ["--max-model-len", "1024", "--max-num-seqs", "32", "--block-size", "32"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    if k:
        speculative = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": k}
        command += ["--speculative-config", json.dumps(speculative)]
    log = tempfile.NamedTemporaryFile(prefix=f"demo-k{k}-", suffix=".log", delete=False)  # noqa: SIM115
    process = subprocess.Popen(
        command, env=os.environ | QUIET, stdout=log, stderr=log, start_new_session=True
    )
    try:
        yield ready(process, f"http://127.0.0.1:{port}", Path(log.name))
    finally:
        end(process)
        log.close()


def ready(process: subprocess.Popen[bytes], url: str, log: Path) -> str:
    """Wait until the engine answers."""
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"the engine ended with {process.returncode}; its log is {log}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code == 200:
                return url
        time.sleep(0.5)
    sys.exit(f"the engine was not ready in 300 s; its log is {log}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End the engine's process group, gently and then for certain."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    process.wait()


def row(name: str, cells: list[str]) -> str:
    """One line of a table."""
    return f"{name:<28}" + "".join(f"{cell:>8}" for cell in cells)


def acceptance(url: str, options: argparse.Namespace) -> None:
    """Print acceptance per position for both kinds of content."""
    for profile in ("predictable", "hard"):
        seen = asyncio.run(measure(url, profile, 4, seconds=options.seconds, warm=options.warm))
        print(row(f"{profile}, 4 streams", [f"{p:.2f}" for p in seen.positions]), flush=True)


def throughput(url: str, profile: str, options: argparse.Namespace) -> list[float]:
    """Tokens per second at each number of streams."""
    return [
        asyncio.run(
            measure(url, profile, n, seconds=options.seconds, warm=options.warm)
        ).tokens_per_second
        for n in STREAMS
    ]


def sweep(options: argparse.Namespace, target: Path, draft: Path) -> None:
    """Print throughput for each k as a ratio to target-only."""
    found: dict[str, list[list[float]]] = {name: [] for name in options.profiles}
    drafting = [k for k in options.k if k]
    turns = [0, *drafting, 0]
    for k in turns:
        with engine(target, draft, k, options) as url:
            if k == max(drafting):
                print(row(f"accepted at position (k={k})", [str(n) for n in range(k)]))
                acceptance(url, options)
            for name in options.profiles:
                speeds = throughput(url, name, options)
                found[name].append(speeds)
                print(row(f"k={k} {name}, tok/s", [f"{s:.0f}" for s in speeds]), flush=True)
    for name, runs in found.items():
        ratios(name, turns, runs)


def ratios(name: str, turns: list[int], runs: list[list[float]]) -> None:
    """Print each k's throughput over the mean of the two target-only runs."""
    base = [(a + b) / 2 for a, b in zip(runs[0], runs[-1], strict=True)]
    print(row(f"\n{name}, ratio to k=0", [f"{n} str." for n in STREAMS]))
    for k, each in zip(turns[1:-1], runs[1:-1], strict=True):
        print(row(f"k={k}", [f"{a / b:.2f}" for a, b in zip(each, base, strict=True)]))
    drift = [abs(a - b) / c for a, b, c in zip(runs[0], runs[-1], base, strict=True)]
    print(row("noise: k=0 first and last", [f"{d:.1%}" for d in drift]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="an engine that drafts already: acceptance only")
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--layers", type=int, default=DEMO_LAYERS)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8])
    parser.add_argument("--profiles", nargs="+", default=["predictable", "hard"])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of load before it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engine is ended too
    if options.url:
        acceptance(options.url, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        target = deepened(options.models / "target", options.layers, Path(folder) / "target")
        print(f"{options.layers} layers, {options.dtype}, {os.cpu_count()} cores", flush=True)
        sweep(options, target, options.models / "draft")


if __name__ == "__main__":
    main()
