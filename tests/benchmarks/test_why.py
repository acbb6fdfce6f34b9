"""What the benchmark of `why` judges by: what was planted, and what else is true of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from benchmarks.why import (
    DEEPEST,
    OTHERS,
    PLANTS,
    format_runs,
    is_true_beside,
    list_tree,
    read_cpus,
    share_of_others,
)


def test_cpus_that_others_use_are_no_false_alarm_and_nothing_else_is_excused() -> None:
    assert is_true_beside("cpu_contention", OTHERS)
    assert not is_true_beside("cpu_contention", OTHERS - 0.01)
    assert not is_true_beside("step_time_latched", 0.9)


def test_what_this_program_and_its_children_use_is_not_others() -> None:
    assert share_of_others((100, 50, 20), (300, 170, 80)) == pytest.approx(0.3)
    assert share_of_others((100, 50, 20), (300, 170, 150)) == 0.0
    assert share_of_others((100, 50, 20), (100, 50, 20)) == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_children_are_found() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= set(list_tree(os.getpid()))
        had, worked, mine = read_cpus()
        assert had > worked > 0
        assert mine > 0


def test_the_table_has_how_often_shared_cpus_were_named() -> None:
    def run(first: str, **more: Any) -> dict[str, Any]:
        names = ["cpu_contention"] * bool(more.get("shared")) + ([first] if first != "none" else [])
        causes = [{"cause": name} for name in names]
        return {"planted": "temperature", "first": first, "causes": causes, **more}

    runs = [run("temperature", shared=True), run("none", shared=False), run("temperature")]
    honest = {"planted": "none", "first": "none", "causes": [], "shared": True}
    text = format_runs([*runs, honest])
    assert "| `temperature` | 3 | 2 | none 1 | – | 1 |" in text
    assert "| nothing | 1 | 1 | – |  | 1 |" in text


def test_the_k_that_is_planted_is_the_deepest_of_its_engine() -> None:
    plant = next(plant for plant in PLANTS if plant.name == "k_beyond_what_pays")
    assert plant.each_k
    assert plant.engine == "every k"
    assert DEEPEST > 6
