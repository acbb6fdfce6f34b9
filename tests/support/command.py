"""The `specdeck` command, run as an operator runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 300.0
"""For a command beside a loaded engine: only one that hangs takes so long."""
ONE_ROUNDING = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
"""Where a CPU has AMX, oneDNN takes other kernels for small batches than for large ones, and they
round differently: target-only then answers otherwise among other requests than alone. Without it
outputs can be held against each other token by token."""
INTERRUPTED_S = 60.0
"""For an interrupted one to end the engine that it was starting."""


@dataclass(frozen=True)
class Command:
    """The `specdeck` command with a home of its own."""

    home: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further variables of its environment."""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **ONE_ROUNDING, "SPECDECK_HOME": str(self.home), **self.extra}

    @staticmethod
    def line(*arguments: str) -> list[str]:
        """The words that start it."""
        return [sys.executable, "-m", "specdeck", *arguments]

    def __call__(
        self, *arguments: str, timeout: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end.

        One that takes too long is interrupted, so that it ends what it started.
        """
        process = subprocess.Popen(
            self.line(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=INTERRUPTED_S)
            raise
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Runs it beside the block, and kills it at the end of that."""
        process = subprocess.Popen(
            self.line(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def engines(self) -> list[dict[str, Any]]:
        """What `ps` lists."""
        listed = self("ps", "--json")
        assert listed.returncode == 0, listed.stderr
        found = json.loads(listed.stdout)
        assert isinstance(found, list)
        return found

    def urls(self) -> set[str]:
        """The addresses of the engines that `ps` lists."""
        return {one["url"] for one in self.engines()}
