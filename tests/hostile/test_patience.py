"""Commands on an engine whose answers have no end: how long they wait, and what they hold."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hostile.busy_engine import BusyEngine
from tests.hostile.judge import KEY_VARIABLE, SECRETS, assert_harmless, files_under
from tests.hostile.lies import COMPLETIONS, METRICS, Case, cases
from tests.support.lying_engine import LyingEngine

COMMANDS = {
    "*": ["set", "URL", "k=3"],
    METRICS: ["watch", "URL", "--count", "1"],
    COMPLETIONS: ["check", "URL", "--limit", "1", "--max-tokens", "4", "--patience", "0"],
}
"""What asks at each path."""
MORE_MB = 64.0
"""What an endless answer may cost beside an honest one."""
LONGEST_S = 120.0
"""On a busy machine; quiet ones need a tenth."""
WAITING = [case for case in cases() if case.waits]
SILENT = [case for case in WAITING if "without an end" not in case.name]
ENDLESS = [case for case in WAITING if case not in SILENT]


def words_of(case: Case, engine: LyingEngine) -> list[str]:
    """The command that hears the lie."""
    (path,) = case.lies
    words = [engine.url if word == "URL" else word for word in COMMANDS[path]]
    return [*words, "--api-key-env", KEY_VARIABLE]


def environment(home: Path) -> dict[str, str]:
    """Of a process with a home of its own and the planted secrets."""
    return {**os.environ, **SECRETS, "SPECDECK_HOME": str(home)}


def test_silence_ends_every_command(tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = []
        for number, case in enumerate(SILENT):
            engine = stack.enter_context(LyingEngine(case.lies, honest=BusyEngine().answer))
            process = subprocess.Popen(
                [sys.executable, "-m", "specdeck", *words_of(case, engine)],
                env=environment(tmp_path / str(number)),
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            running.append((case.name, process))
        for name, process in running:
            out, err = process.communicate(timeout=LONGEST_S)
            assert_harmless(process.returncode, out, err)
            assert process.returncode, name
    assert_harmless(0, "", "", files=files_under(tmp_path))


SERVANT = """
import json, resource, sys
from tests.hostile.commands import run

for line in sys.stdin:
    code = run(json.loads(line)).code
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([code, held / 1024]), flush=True)
"""
"""Runs commands in one process, and tells the exit code of each and the most it has held, in MB."""


class Servant:
    """A process that runs one command after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, words: Sequence[str]) -> tuple[int, float]:
        """The exit code, and the most that the process has ever held, in MB."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        began = time.monotonic()
        if not select.select([self._process.stdout], [], [], LONGEST_S)[0]:
            pytest.fail(f"still running after {time.monotonic() - began:.0f} s")
        code, held = json.loads(self._process.stdout.readline())
        return code, held


@pytest.fixture(scope="module")
def servant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servant]:
    """One process for all endless answers: starting one costs more than most of them."""
    home = tmp_path_factory.mktemp("servant")
    with subprocess.Popen(
        [sys.executable, "-c", SERVANT],
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Servant(process)
        process.kill()
    assert_harmless(0, "", "", files=files_under(home))


@pytest.fixture(scope="module")
def honest_mb(servant: Servant) -> float:
    """What the commands hold on an engine that tells the truth."""
    held = 0.0
    for path in COMMANDS:
        with LyingEngine({}, honest=BusyEngine().answer) as engine:
            code, held = servant.run(words_of(Case("none", {path: b""}), engine))
        assert code in (0, 1)
    return held


@pytest.mark.parametrize("case", ENDLESS, ids=lambda case: case.name)
def test_an_endless_answer_ends_a_command_in_bounded_memory(
    case: Case, servant: Servant, honest_mb: float
) -> None:
    with LyingEngine(case.lies, honest=BusyEngine().answer) as engine:
        code, held = servant.run(words_of(case, engine))
    assert code
    assert held <= honest_mb + MORE_MB
