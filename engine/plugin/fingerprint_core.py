"""Gathers the facts of one engine core without holding up its start or its steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from specdeck.engine.fingerprint.digest import cache_file
from specdeck.engine.plugin.facts import facts, sources
from specdeck.engine.plugin.fingerprint_board import Board
from specdeck.engine.plugin.fingerprint_identity import Identity
from specdeck.engine.plugin.seam import Build

_READER = "specdeck.engine.fingerprint.gather"

Say = Callable[[dict[str, Any]], None]


def identity(core: Any, build: Build, instance: str) -> tuple[Identity, Board | None]:
    """The identity of `core`; what takes long is read from now on, in a process beside it."""
    began = time.perf_counter()
    board = _board(instance)
    known = facts(core.vllm_config, build)
    worker = _first_worker(core)
    known["runtime"] = {name: worker[name] for name in ("device", "attention") if name in worker}
    found = Identity(known, complete=False, show=board.write if board else lambda _: None)
    request = {
        **sources(core.vllm_config),
        "libraries": worker.get("libraries", []),
        "cache": str(cache_file(os.environ)),
    }
    held_ms = (time.perf_counter() - began) * 1e3
    if getattr(core.vllm_config.parallel_config, "data_parallel_index", 0):
        return found, board  # the first engine speaks for all: one reading is enough
    thread = threading.Thread(
        target=learn, args=(found, request, held_ms), name="specdeck-facts", daemon=True
    )
    thread.start()
    return found, board


def learn(identity: Identity, request: Mapping[str, Any], held_ms: float) -> None:
    """Has the facts of `request` read and hands them over; a failure leaves a reason."""
    began = time.monotonic()

    def note(progress: Mapping[str, Any]) -> None:
        seconds = round(time.monotonic() - began, 3)
        held = {"seconds": seconds, "held_engine_ms": round(held_ms, 2)}
        identity.note({"finished": False, **progress, **held})

    try:
        result = read_beside(request, note)
    except (OSError, ValueError, EOFError) as error:
        reason = f"the reading process failed: {' '.join(str(error).split())[:120]}"
        identity.complete({}, [{"fact": "model, runtime", "reason": reason}])
        note({"finished": True})
        return
    identity.complete(
        {"model": result["model"], "runtime": result["runtime"]}, list(result["unread"])
    )
    # Last: whoever is told that it is finished takes the names for what they stay.
    note({"finished": True, "bytes": result["bytes"], "total_bytes": result["bytes"]})


def read_beside(request: Mapping[str, Any], note: Say) -> dict[str, Any]:
    """The result of the reading process; raises EOFError when it ends without one."""
    with subprocess.Popen(
        [sys.executable, "-m", _READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(json.dumps(request) + "\n")
        reader.stdin.close()
        for line in reader.stdout:
            said = json.loads(line)
            if "result" in said:
                found: dict[str, Any] = said["result"]
                return found
            note(said)
    raise EOFError(f"it ended with {reader.returncode} and without a result")


def _first_worker(core: Any) -> dict[str, Any]:
    """Rank 0 speaks for all: its libraries lie on this machine."""
    answers = core.model_executor.collective_rpc("specdeck_worker", args=("facts",))
    return dict(answers[0]) if answers else {}


def _board(instance: str) -> Board | None:
    """None where the system has no such memory: responses then stay vLLM's own."""
    try:
        return Board(instance)
    except (OSError, AttributeError):
        return None
