"""How far the start of an engine has come, from its own log and whether it answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from specdeck.engine.files import open_file
from specdeck.engine.fingerprint.secrecy import redact
from specdeck.engine.launch.failure_reason import Mask, find_reason

Stage = Literal["environment", "weights", "process", "loading", "warming", "ready"]
"""In this order: the machine is checked, models are made, the engine's process begins,
it loads the weights, measures and warms up, and answers."""

STAGES: tuple[Stage, ...] = get_args(Stage)

_MARKS: tuple[tuple[Stage, tuple[str, ...]], ...] = (
    (
        "warming",
        (
            "Model loading took",
            "# GPU blocks:",
            "KV cache size:",
            "Warming up model",
            "Capturing CUDA graph",
            "init engine (profile",
            "Starting vLLM server on",
            "Starting vLLM API server",
        ),
    ),
    ("loading", ("Starting to load model", "Loading safetensors", "Initializing a V1 LLM engine")),
)

STALLED_S = 20.0
"""How long a server may outlive the end of its engine core before it counts as failed."""

_TAIL_LINES = 12
_PIECE = 1 << 20
"""Bytes that one look reads at most: a log may come faster than anybody could read it."""
_LONGEST_LINE = 8 << 10
"""Bytes of a line that are looked at: the rest of a longer one is let go."""
_LONGEST_SHOWN = 1 << 10
"""Characters of it that are kept to be shown: no terminal is wider, and a credential that the cut
above goes through lies behind them."""
_CORE_ENDED = ("EngineCore failed to start", "Engine core initialization failed")


@dataclass(frozen=True, slots=True)
class StartProgress:
    """One moment of a start."""

    stage: Stage
    elapsed: float
    """Seconds since the start was asked for."""
    last_elapsed: float | None = None
    """What the last start of the same config took in all; None when there was none."""
    log: tuple[str, ...] = ()
    """The engine's last lines, the newest last."""
    failed: str | None = None
    """The engine's own reason, in one line; None while there is hope."""
    log_path: Path | None = None
    """None before there is a process."""

    @property
    def ready(self) -> bool:
        """Whether the engine answers."""
        return self.stage == "ready"


def stage(line: str) -> Stage | None:
    """The stage that a line of vLLM's log shows to have begun; None when it shows none.

    >>> stage("(Worker pid=9) INFO 11-21 08:45:36 [model_runner.py:68] Starting to load model m...")
    'loading'
    >>> stage("(EngineCore pid=7) INFO 11-21 08:45:50 [core.py:320] init engine (profile, cr…")
    'warming'
    >>> stage("(APIServer pid=5) INFO 11-21 08:44:58 [model.py:2152] Using max model len 256")
    """
    return next((name for name, marks in _MARKS if any(m in line for m in marks)), None)


def later(one: Stage, other: Stage | None) -> Stage:
    """The stage that comes later; several processes log, so a line may lag behind.

    >>> later("warming", "loading"), later("process", None)
    ('warming', 'process')
    """
    return one if other is None or STAGES.index(other) < STAGES.index(one) else other


class LogTail:
    """The last lines of a file that grows, without the credentials in them."""

    def __init__(self, path: Path, mask: Mask = str) -> None:
        """`mask` takes what the engine was given in secret out of a text."""
        self.path = path
        self._mask = mask
        self.lines: tuple[str, ...] = ()
        self._offset = 0
        self._rest = b""

    def read(self) -> tuple[str, ...]:
        """The whole lines that came since the last call, or those of the next megabyte."""
        try:
            with open_file(self.path) as file:
                file.seek(self._offset)
                data = file.read(_PIECE)
        except OSError:
            return ()
        self._offset += len(data)
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LONGEST_LINE]
        new = tuple(line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r") for line in whole)
        told = [line for line in new if line.strip()][-_TAIL_LINES:]
        shown = (redact(self._mask(line))[:_LONGEST_SHOWN] for line in told)
        self.lines = (*self.lines, *shown)[-_TAIL_LINES:]
        return new

    def text(self, limit: int = 1 << 20) -> str:
        """All of the file, or its last `limit` bytes, as it is."""
        try:
            with open_file(self.path) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
                return file.read(limit).decode("utf-8", "replace")
        except OSError:
            return ""


async def follow(
    log: Path,
    *,
    exit_code: Callable[[], int | None],
    answers: Callable[[], Awaitable[bool]],
    began: float,
    last_elapsed: float | None = None,
    mask: Mask = str,
    every: float = 0.25,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[StartProgress]:
    """The start of an engine, a moment at a time; the last one is ready or failed.

    `exit_code` tells how the server ended, None while it runs; `answers` asks it over
    HTTP. `began` is on `clock`, and `mask` is of the log's lines.
    """
    tail = LogTail(log, mask)
    core_ended: float | None = None
    now = StartProgress("process", 0.0, last_elapsed, log_path=log)
    while True:
        code = exit_code()  # before the log is read, so that its last words are in it
        for line in tail.read():
            now = replace(now, stage=later(now.stage, stage(line)))
            if core_ended is None and any(mark in line for mark in _CORE_ENDED):
                core_ended = clock()
        now = replace(now, elapsed=clock() - began, log=tail.lines)
        # vLLM's server has been seen to wait for ever for a core that had ended.
        stalled = core_ended is not None and clock() - core_ended > STALLED_S
        if code is not None or stalled:
            yield replace(now, failed=find_reason(tail.text(), code, mask))
            return
        if await answers():
            yield replace(now, stage="ready", elapsed=clock() - began)
            return
        yield now
        await sleep(every)
