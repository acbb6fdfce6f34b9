"""When the engine that a process belongs to began to start."""

import multiprocessing
import os
import time
from typing import Any

import pytest

from specdeck.engine.plugin.start_time import find_start, note_start


def test_the_first_note_stays() -> None:
    environment: dict[str, str] = {}
    assert find_start(environment) is None
    note_start(environment, wall=1_000.5)
    note_start(environment, wall=2_000.0)  # vLLM loads plugins several times
    assert find_start(environment) == 1_000.5


@pytest.mark.parametrize("left", ["1 1000.5", "PID soon", "", "x"])
def test_what_another_program_left_is_replaced(left: str) -> None:
    environment = {"_SPECDECK_BEGAN": left.replace("PID", str(os.getpid()))}
    assert find_start(environment) is None
    note_start(environment)
    assert abs((find_start(environment) or 0.0) - time.time()) < 60


def ask(answers: Any) -> None:
    note_start()
    answers.put(find_start())


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_process_that_the_first_one_starts_has_its_time(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("_SPECDECK_BEGAN", raising=False)
    note_start(wall=1_000.5)
    context: Any = multiprocessing.get_context(method)
    answers = context.Queue()
    process = context.Process(target=ask, args=(answers,))
    process.start()
    assert answers.get(timeout=60) == 1_000.5
    process.join()
