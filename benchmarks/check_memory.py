"""What a check holds in memory, over the number of its prompts; no engine is needed.

    python -m benchmarks.check_memory [--prompts 100 5000]

Each number runs in a process of its own against answers made on the spot. One answer in twenty
differs, as cases are what could pile up.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import psutil
from benchmarks.engines import table
from tests.support.checks import finish_check
from tests.support.engine_state import engine_state

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.divergence.prompts import load_prompts
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.operations.check import ArmPair, CheckedEngine, CheckEvent, CheckOptions
from specdeck.engine.protocol.messages import PREFIX, Capability
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store

TOKENS = 32
STATE = engine_state(running=0, capabilities=(Capability("request_k", True),))
PAGES: dict[str, Any] = {
    "/v1/models": {"data": [{"id": "demo"}]},
    "/version": {"version": "0"},
    f"{PREFIX}/state": STATE.as_json(),
    f"{PREFIX}/facts": {"facts": {"vllm": "0"}},
}


def answer(request: httpx.Request) -> httpx.Response:
    """What an engine would answer; every twentieth prompt parts at its tenth token."""
    if request.method == "GET":
        return httpx.Response(200, json=PAGES.get(request.url.path, {}))
    body = json.loads(request.content)
    if "prompt_logprobs" in body:  # the recheck of a case
        return httpx.Response(400, json={"error": {"message": "not here"}})
    number = int(body["prompt"].split()[-1])
    parts = number % 20 == 0 and "vllm_xargs" not in body
    ids = [300 + (n + number) % 900 + (parts and n >= 10) for n in range(TOKENS)]
    tops = [{f"token_id:{i}": -0.25, f"token_id:{i + 1}": -0.3125} for i in ids]
    logprobs = {"token_logprobs": [-0.25] * TOKENS, "top_logprobs": tops}
    choice = {"text": "x" * TOKENS, "token_ids": ids, "prompt_token_ids": [1],
              "finish_reason": "length", "logprobs": logprobs}  # fmt: skip
    if not body.get("stream"):
        return httpx.Response(200, json={"choices": [choice]})
    return httpx.Response(
        200, text=f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
    )


async def measure(count: int) -> dict[str, float]:
    """Bytes that are held shortly before the end of a check of so many prompts."""
    found: dict[str, float] = {}

    def weigh(event: CheckEvent) -> None:
        if isinstance(event, CheckProgress) and event.done == count - 10:
            gc.collect()
            found["traced"] = tracemalloc.get_traced_memory()[0]
            found["rss"] = psutil.Process().memory_info().rss

    with tempfile.TemporaryDirectory() as name, Store(Path(name) / "store.sqlite") as store:
        path = Path(name) / "prompts.txt"
        path.write_text("".join(f"prompt {n}\n" for n in range(1, count + 1)))
        transport = httpx.MockTransport(answer)
        engine = CheckedEngine(
            open_client("http://engine", transport=transport), transport=transport
        )
        tracemalloc.start()
        async with ArmPair(engine, None, CheckOptions(max_tokens=TOKENS)) as pair:
            await finish_check(pair, load_prompts(path), Checks(store), weigh)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(measure(options.one))))
        return
    rows = []
    for count in options.prompts:
        command = [sys.executable, "-m", "benchmarks.check_memory", "--one", str(count)]
        data = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        rows.append([str(count), f"{data['traced'] / 2**20:.2f}", f"{data['rss'] / 2**20:.1f}"])
    print(table(["prompts", "traced, MiB", "resident, MiB"], rows))


if __name__ == "__main__":
    main()
