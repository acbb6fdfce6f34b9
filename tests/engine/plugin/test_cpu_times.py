"""How long an engine's threads waited for a CPU, out of trees of files as Linux has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.engine_core import Clock, FakeCore
from tests.support.schedstat_tree import SchedstatTree

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.cpu_times import LEAST_GAP_S, CpuTimes, CpuWatch

CORE, WORKER, OTHER = 100, 200, 300


@pytest.fixture
def tree(tmp_path: Path) -> SchedstatTree:
    """An engine core with two workers, one of which computes with two threads."""
    tree = SchedstatTree(tmp_path)
    tree.add(CORE, 1, 101)
    tree.add(WORKER, CORE, 201, 202)
    tree.add(OTHER, CORE)
    return tree


def watch(tree: SchedstatTree, clock: Clock, *workers: int) -> CpuWatch:
    """What watches it, begun."""
    found = CpuWatch(workers, pid=CORE, proc=tree.proc, groups=tree.groups, clock=clock)
    found.read()
    return found


def read(found: CpuWatch) -> tuple[float | None, ...]:
    """What it tells, one figure after the other."""
    told = found.read()
    assert told is not None
    return astuple(told)


def test_the_step_thread_of_the_core_and_the_worker_that_waited_longest_are_told(
    tree: SchedstatTree, clock: Clock
) -> None:
    found = watch(tree, clock, WORKER, OTHER)
    tree.spend(CORE, CORE, 0.2, 0.5)
    tree.spend(CORE, 101, 0.01, 0.9)  # wakes now and then: nobody waits for it
    tree.spend(WORKER, WORKER, 0.8, 0.1)
    tree.spend(WORKER, 201, 0.6, 0.3)  # the others spin at the barrier until it comes
    tree.spend(OTHER, OTHER, 0.9, 0.05)
    clock.now += 1.0
    assert read(found) == pytest.approx((1.0, 0.2, 0.5, 0.8, 0.3, None))
    tree.spend(OTHER, OTHER, 0.2, 1.8)
    clock.now += 2.0
    assert read(found) == pytest.approx((3.0, 0.2, 0.5, 1.0, 2.1, None))


def test_the_first_look_has_nothing_and_two_at_once_are_one(
    tree: SchedstatTree, clock: Clock
) -> None:
    tree.spend(WORKER, WORKER, 50.0, 50.0)
    found = watch(tree, clock, WORKER)
    assert found.read() == CpuTimes(0.0, 0.0, 0.0, 0.0, 0.0, None)
    tree.spend(WORKER, WORKER, 0.1, 0.1)
    clock.now += LEAST_GAP_S / 2
    assert found.read() == CpuTimes(0.0, 0.0, 0.0, 0.0, 0.0, None)
    clock.now += LEAST_GAP_S / 2
    assert read(found) == pytest.approx((LEAST_GAP_S, 0.0, 0.0, 0.1, 0.1, None))


def test_a_worker_in_the_engine_core_is_told_as_a_worker_alone(
    tree: SchedstatTree, clock: Clock
) -> None:
    found = watch(tree, clock, CORE)
    tree.spend(CORE, CORE, 0.7, 0.2)
    clock.now += 1.0
    assert read(found) == pytest.approx((1.0, None, None, 0.7, 0.2, None))


def test_a_process_that_is_no_child_is_none_of_ours(tree: SchedstatTree, clock: Clock) -> None:
    """A worker of another machine has a number that somebody else may have here."""
    tree.add(400, 1)
    found = watch(tree, clock, 400, 999)
    tree.spend(400, 400, 0.1, 0.9)
    tree.spend(CORE, CORE, 0.5, 0.1)
    clock.now += 1.0
    assert read(found) == pytest.approx((1.0, 0.5, 0.1, None, None, None))


def test_a_system_that_does_not_say_is_unknown(tmp_path: Path, clock: Clock) -> None:
    nowhere = CpuWatch([CORE], pid=CORE, proc=tmp_path / "proc", groups=tmp_path, clock=clock)
    assert nowhere.read() is None
    clock.now += 1.0
    assert nowhere.read() is None
    tree = SchedstatTree(tmp_path)
    tree.add(CORE, 1)
    (tree.proc / f"{CORE}/task/{CORE}/schedstat").unlink()
    assert watch(tree, clock, CORE).read() is None


def test_a_kernel_that_does_not_count_says_nothing(tree: SchedstatTree, clock: Clock) -> None:
    found = watch(tree, clock, WORKER)
    clock.now += 1.0
    told = found.read()
    assert told is None or told.watched == 0.0


def test_a_worker_that_ends_takes_nothing_back(tree: SchedstatTree, clock: Clock) -> None:
    found = watch(tree, clock, WORKER)
    tree.spend(WORKER, WORKER, 0.5, 0.5)
    clock.now += 1.0
    found.read()
    shutil.rmtree(tree.proc / str(WORKER))
    tree.spend(CORE, CORE, 0.5, 0.1)
    clock.now += 1.0
    assert read(found) == pytest.approx((2.0, 0.5, 0.1, 0.5, 0.5, None))


def test_a_thread_that_becomes_the_busy_one_is_found_within_a_minute(
    tree: SchedstatTree, clock: Clock
) -> None:
    for thread in range(210, 250):
        (tree.proc / f"{WORKER}/task/{thread}").mkdir()
        tree.spend(WORKER, thread, 0.1)
    found = watch(tree, clock, WORKER)
    for _ in range(130):
        tree.spend(WORKER, 249, 0.5, 0.5)
        clock.now += 1.0
        found.read()
    told = found.read()
    assert told is not None
    assert told.worker_waited is not None
    assert 60 * 0.5 < told.worker_waited <= 65


def test_however_many_workers_there_are_few_threads_are_read(
    tree: SchedstatTree, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = range(1000, 1016)
    for worker in workers:
        tree.add(worker, CORE, *range(worker * 100, worker * 100 + 9))
    found = watch(tree, clock, *workers)
    opened: list[object] = []
    real = os.open

    def open_counted(*args: Any) -> int:
        opened.append(args)
        return real(*args)

    monkeypatch.setattr(os, "open", open_counted)
    clock.now += 1.0
    found.read()
    assert len(opened) <= 60


@pytest.mark.parametrize(
    ("line", "folder", "before", "after"),
    [
        ("0::/pod/a", "pod/a", "throttled_usec 1000000\n", "throttled_usec 1500000\nx y\n"),
        ("0::/", ".", "throttled_usec 0\n", "throttled_usec 500000\n"),
        ("0::/host/path", ".", "throttled_usec 7\n", "throttled_usec 500007\n"),
        ("3:cpu,cpuacct:/a", "cpu/a", "throttled_time 5\n", "throttled_time 500000005\n"),
    ],
)  # fmt: skip
def test_what_a_quota_takes_is_told(
    line: str, folder: str, before: str, after: str, tree: SchedstatTree, clock: Clock
) -> None:
    tree.group(CORE, line, folder, before)
    found = watch(tree, clock, WORKER)
    tree.spend(WORKER, WORKER, 0.5)
    tree.group(CORE, line, folder, after)
    clock.now += 1.0
    told = found.read()
    assert told is not None
    assert told.throttled == pytest.approx(0.5)


spent = st.tuples(
    st.sampled_from([(CORE, CORE), (WORKER, WORKER), (WORKER, 201), (OTHER, OTHER)]),
    st.floats(0, 5), st.floats(0, 5), st.floats(0, 2),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(moves=st.lists(spent, max_size=12))
def test_figures_only_rise_and_none_waits_longer_than_all_threads_did(
    moves: list[tuple[tuple[int, int], float, float, float]], tmp_path: Path
) -> None:
    tree, clock = SchedstatTree(tmp_path / os.urandom(8).hex()), Clock()
    tree.add(CORE, 1)
    tree.add(WORKER, CORE, 201)
    tree.add(OTHER, CORE)
    found = watch(tree, clock, WORKER, OTHER)
    last = (0.0, 0.0, 0.0, 0.0, 0.0)
    for (pid, thread), ran, waited, passed in moves:
        tree.spend(pid, thread, ran, waited)
        clock.now += passed
        told = found.read()
        if told is None:
            continue
        now = astuple(told)[:5]
        assert all(each is not None and each >= was for each, was in zip(now, last, strict=True))
        last = now
    waited = sum(each[1] for (pid, _), each in tree.threads.items() if pid != CORE)
    assert last[4] <= waited + 1e-6


def test_the_control_tells_them(control: Control, engine: FakeCore) -> None:
    assert control.answer("cpu", None) == {"cpu": None}
    engine.cpu = CpuTimes(2.0, 0.1, 0.2, 0.3, 0.4, None)
    assert control.answer("cpu", None)["cpu"]["worker_waited"] == 0.4


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no schedstat here")
def test_a_real_child_is_watched() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            found = CpuWatch([child.pid])
            for _ in range(40):
                time.sleep(LEAST_GAP_S)
                told = found.read()
                if told is not None and (told.worker_ran or 0.0) > 0:
                    break
            assert told is not None
            assert told.worker_ran is not None
            assert 0 < told.worker_ran <= told.watched * 1.1
        finally:
            child.kill()
