"""One part in a process of its own: what it is told, and where it writes down what it finds.

python -m benchmarks.gpu.task TASK.json REPORT.json
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.gpu.engines import Standing
from benchmarks.gpu.parts import PARTS, Part
from benchmarks.gpu.report import Report
from benchmarks.gpu.variants import Setup


@dataclass(frozen=True, slots=True)
class Task:
    """What a part is told."""

    part: Part
    setup: Setup
    engines: Mapping[str, Standing]
    """By role; one may have failed."""
    seconds: float
    """Left when the part began."""

    @property
    def small(self) -> bool:
        """Whether to do a little of everything, for a dry run."""
        return self.setup.small

    def running(self, *roles: str) -> list[Standing]:
        """Those of these roles that run."""
        return [self.engines[role] for role in roles if self.engines[role].failure is None]

    def describe_missing(self) -> str:
        """The engines that this part goes without, and why; empty when it has all."""
        lines = [
            f"- no engine `{role}`: {standing.failure}"
            for role, standing in self.engines.items()
            if standing.failure is not None
        ]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        setup = asdict(self.setup) | {"folder": str(self.setup.folder)}
        engines = {role: standing.as_json() for role, standing in self.engines.items()}
        return {
            "part": self.part.number, "setup": setup, "engines": engines, "seconds": self.seconds,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """What `as_json` made."""
        part = next(part for part in PARTS if part.number == data["part"])
        setup = Setup(**{**data["setup"], "folder": Path(data["setup"]["folder"])})
        engines = {role: Standing.from_json(one) for role, one in data["engines"].items()}
        return cls(part, setup, engines, data["seconds"])


def main() -> None:
    task = Task.from_json(json.loads(Path(sys.argv[1]).read_text()))
    report = Report(Path(sys.argv[2]))
    # A time limit that ends the part must end the engines that it started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if missing := task.describe_missing():
        report.put("missing", missing)
    asyncio.run(importlib.import_module(f"benchmarks.gpu.{task.part.name}").run(task, report))
    report.finish()


if __name__ == "__main__":
    main()
