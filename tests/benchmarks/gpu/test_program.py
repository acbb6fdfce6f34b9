"""The order, the limits and the failures of `python -m benchmarks.gpu`, without an engine."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from benchmarks.gpu.engines import Standing
from benchmarks.gpu.parts import MAIN, PARTS, Part
from benchmarks.gpu.program import Program
from benchmarks.gpu.variants import Setup

FINDS = """
import sys
from pathlib import Path
from benchmarks.gpu.report import Report

report = Report(Path(sys.argv[2]))
report.put("words", "what it found")
"""
ENDS = FINDS + "report.finish()\n"
STOPS = FINDS + "raise RuntimeError('planted; api_key=sk-123456')\n"
HANGS = """
import json, pathlib, sys, time
found = {"blocks": {"words": "what it found"}, "checks": [], "finished": False}
pathlib.Path(sys.argv[2]).write_text(json.dumps(found))
time.sleep(600)
"""
"""Imports nothing that takes time: it is to have found something before its time is over."""

ALONE = Part(1, "alone", "A part without an engine", "?", 0.5)
WITH_ENGINE = Part(2, "with_engine", "A part with one", "?", 0.5, (MAIN, "other"))
FOR_CUDA = Part(3, "for_cuda", "A part for CUDA", "?", 0.5, gpu_only="it counts graphs")

Run = Callable[..., tuple[bool, str]]


class Provided:
    """Engines that stand, or do not, as a test says."""

    def __init__(self, *, absent: bool = False, log: str = "", **failures: str) -> None:
        self.absent = absent
        self.log = log
        self.failures = failures
        self.kept: list[tuple[str, ...]] = []

    def provide(self, roles: Sequence[str], until: float) -> dict[str, Standing]:
        return {
            role: Standing(
                role, role, log=self.log, failure=self.failures.get(role), absent=self.absent
            )
            for role in roles
        }

    def keep(self, roles: Sequence[str]) -> None:
        self.kept.append(tuple(roles))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs parts that do what a script says; whether all was well, and the page."""

    def run_parts(
        script: str,
        *parts: Part,
        seconds: float = 300.0,
        engines: Provided | None = None,
        small: bool = True,
    ) -> tuple[bool, str]:
        page = tmp_path / "GPU.md"
        command = (sys.executable, "-c", script)
        program = Program(Setup(tmp_path, small=small), page, seconds, command=command)
        good = program.run_with(engines or Provided(), parts)
        return good, page.read_text()

    return run_parts


def test_a_part_that_ends_has_run(run: Run) -> None:
    good, page = run(ENDS, ALONE)
    assert good
    assert "**ran in its small form**" in page
    assert "what it found" in page


def test_a_part_that_fails_shows_its_last_words_and_what_it_found(run: Run) -> None:
    good, page = run(STOPS, ALONE)
    assert not good
    assert "**FAILED in its small form: it ended with 1**" in page
    assert "what it found" in page
    assert "RuntimeError: planted" in page
    assert "sk-123456" not in page


def test_a_part_beyond_its_time_loses_only_the_rest(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("waiting for a step\n")
    short = Part(1, "short", "A part of seconds", "?", 6 / 60, ("other",))
    good, page = run(HANGS, short, small=False, engines=Provided(log=str(log)))
    assert not good
    assert "**CUT SHORT: after" in page
    assert "what it found" in page
    assert "--- the engine other:\nwaiting for a step" in page


def test_a_program_that_is_ended_says_so_of_its_part(run: Run, tmp_path: Path) -> None:
    class Ending(Provided):
        def provide(self, roles: Sequence[str], until: float) -> dict[str, Standing]:
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        run(ENDS, ALONE, engines=Ending())
    assert (
        "**CUT SHORT in its small form: the program was ended" in (tmp_path / "GPU.md").read_text()
    )


def test_configs_logs_and_reports_are_kept_and_tokens_are_not(tmp_path: Path) -> None:
    work, keep = tmp_path / "work", tmp_path / "keep"
    work.mkdir()
    (work / "main.token").write_text("a secret")
    command = (sys.executable, "-c", ENDS)
    program = Program(
        Setup(work, small=True), tmp_path / "GPU.md", 300.0, keep=keep, command=command
    )
    program.run_with(Provided(), [ALONE])
    assert {path.name for path in keep.iterdir()} == {"part-1.json", "part-1.log"}


def test_what_is_left_when_the_time_is_over_says_so(run: Run) -> None:
    good, page = run(ENDS, ALONE, seconds=0)
    assert not good
    assert "**not run: the time was over**" in page
    assert "what it found" not in page


def test_without_cuda_a_part_for_it_says_why_and_is_no_failure(run: Run) -> None:
    good, page = run(ENDS, FOR_CUDA)
    assert good
    assert "**not on this machine: it counts graphs**" in page
    assert "what it found" not in page


def test_without_its_first_engine_a_part_does_not_run(run: Run) -> None:
    good, page = run(ENDS, WITH_ENGINE, engines=Provided(main="CUDA error: api_key=sk-123456"))
    assert not good
    assert "**FAILED in its small form: CUDA error: api_key=***" in page
    assert "what it found" not in page


def test_an_engine_that_this_machine_cannot_have_is_no_failure(run: Run) -> None:
    good, page = run(ENDS, WITH_ENGINE, engines=Provided(absent=True, main="no CUDA here"))
    assert good
    assert "**not on this machine: no CUDA here**" in page


def test_a_part_runs_without_an_engine_that_it_can_spare(run: Run) -> None:
    good, page = run(ENDS, WITH_ENGINE, engines=Provided(other="it ended"))
    assert good
    assert "what it found" in page


def test_only_engines_of_later_parts_are_kept(run: Run) -> None:
    engines = Provided()
    run(ENDS, ALONE, WITH_ENGINE, FOR_CUDA, engines=engines)
    assert engines.kept == [(MAIN, "other"), (), ()]


def test_the_parts_are_in_order_and_fit_their_numbers() -> None:
    assert [part.number for part in PARTS] == list(range(1, len(PARTS) + 1))
