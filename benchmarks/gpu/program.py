"""The parts one after the other, each in its process, and the page after each of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import httpx
from benchmarks.gpu.engines import Fleet, Standing, read_tail
from benchmarks.gpu.machine import describe_machine
from benchmarks.gpu.page import Outcome, Page, Status
from benchmarks.gpu.parts import Part
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.variants import Setup

ROOT = Path(__file__).parents[2]

LEAST_S = 20.0
"""Time left below which no part is begun."""

ENDING_S = 40.0
"""For a part that was told to end, with the engines that it started."""


class Engines(Protocol):
    """Who starts engines for the parts."""

    def provide(self, roles: Sequence[str], until: float) -> dict[str, Standing]:
        """An engine for each role, or why there is none."""

    def keep(self, roles: Sequence[str]) -> None:
        """Ends those that play none of these roles."""


class Program:
    """A run of the program."""

    def __init__(
        self,
        setup: Setup,
        page: Path,
        seconds: float,
        *,
        keep: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        command: Sequence[str] = (sys.executable, "-m", "benchmarks.gpu.task"),
    ) -> None:
        """`keep` is where configs, logs and reports are copied to after each part.

        `command` runs one part; the files of its task and its report follow.
        """
        self._setup = setup
        self._page = Page(page)
        self._clock = clock
        self._until = clock() + seconds
        self._keep = keep
        self._command = command
        self._machine = describe_machine(setup.gpu)

    def run(self, parts: Sequence[Part]) -> bool:
        """All of them, with engines of their own; whether nothing went wrong."""
        with Fleet(self._setup) as fleet:
            return self.run_with(fleet, parts)

    def run_with(self, engines: Engines, parts: Sequence[Part]) -> bool:
        """All of them, as far as time allows; whether nothing went wrong."""
        good = True
        for place, part in enumerate(parts):
            print(f"{part.number}. {part.title} …", file=sys.stderr, flush=True)
            began = self._clock()
            outcome: Outcome | None = None
            try:
                outcome = self._find_outcome(part, engines)
            finally:
                if outcome is None:  # somebody ends the program
                    report = Report.read(self._stem(part).with_suffix(".json"))
                    outcome = self._outcome(part, "cut", "the program was ended", report)
                print(f"   {outcome.describe_status()}", file=sys.stderr, flush=True)
                self._page.put(_with_about(outcome, self._machine, self._clock() - began))
                self._copy_files()
            good = good and outcome.is_good
            engines.keep([role for later in parts[place + 1 :] for role in later.engines])
        return good

    def _find_outcome(self, part: Part, engines: Engines) -> Outcome:
        if part.gpu_only is not None and self._setup.gpu is None:
            return self._outcome(part, "absent", part.gpu_only)
        left = self._until - self._clock()
        if left < LEAST_S:
            return self._outcome(part, "skipped", "the time was over")
        # The small form is no measurement: it may take what a busy machine takes.
        until = self._clock() + (left if self._setup.small else min(left, part.minutes * 60))
        standings = engines.provide(part.engines, until)
        if part.engines and (first := standings[part.engines[0]]).failure is not None:
            status: Status = "absent" if first.absent else "failed"
            log = () if first.absent else read_tail(Path(first.log))
            return self._outcome(part, status, first.failure, log=log)
        return self._run_process(part, standings, until - self._clock())

    def _run_process(
        self, part: Part, standings: Mapping[str, Standing], seconds: float
    ) -> Outcome:
        stem = self._stem(part)
        task, report, log = (stem.with_suffix(kind) for kind in (".task", ".json", ".log"))
        report.unlink(missing_ok=True)
        task.write_text(json.dumps(Task(part, self._setup, standings, seconds).as_json()))
        command = [*self._command, str(task), str(report)]
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
            try:
                code = process.wait(max(1.0, seconds))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        found = Report.read(report)
        if code is None:
            tail = [*read_tail(log), *_read_tails(standings)]
            return self._outcome(part, "cut", f"after {seconds:.0f} s", found, log=tail)
        if code or not found.finished:
            tail = [*read_tail(log), *_read_tails(standings, dead_only=True)]
            return self._outcome(part, "failed", f"it ended with {code}", found, log=tail)
        return self._outcome(part, "ran", "", found)

    def _stem(self, part: Part) -> Path:
        return self._setup.folder / f"part-{part.number}"

    def _copy_files(self) -> None:
        if self._keep is None:
            return
        self._keep.mkdir(parents=True, exist_ok=True)
        for pattern in ("*.log", "*.json", "*.yaml"):  # and no token
            for path in self._setup.folder.glob(pattern):
                shutil.copyfile(path, self._keep / path.name)

    def _outcome(
        self,
        part: Part,
        status: Status,
        why: str,
        report: Report | None = None,
        *,
        log: Sequence[str] = (),
    ) -> Outcome:
        return Outcome(part, status, why, "", report or Report(), self._setup.small, log)


def _with_about(outcome: Outcome, machine: str, seconds: float) -> Outcome:
    if outcome.status in ("absent", "skipped"):
        return outcome
    about = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {machine} · took {seconds:.0f} s"
    return replace(outcome, about=about)


def _read_tails(standings: Mapping[str, Standing], *, dead_only: bool = False) -> list[str]:
    """The ends of the logs of a part's engines, or of those alone that no longer answer."""
    found: list[str] = []
    for standing in standings.values():
        if standing.failure is None and not (dead_only and _answers(standing)):
            found += [f"--- the engine {standing.variant}:", *read_tail(Path(standing.log))]
    return found


def _answers(standing: Standing) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{standing.url}/health", timeout=5, trust_env=False).is_success
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING_S)
    process.kill()
    process.wait()
