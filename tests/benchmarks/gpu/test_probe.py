"""The counts of the drafter's passes, captures and replays included."""

from pathlib import Path

import pytest
from benchmarks.gpu.probe import Counts, Probe


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counts"


def test_passes_in_python_are_counted_as_they_are_made(path: Path) -> None:
    probe = Probe(path)
    probe.count_proposal()
    probe.count_call()
    probe.count_call()
    assert Counts.read(path) == Counts(called=2, proposals=1)


def test_a_replay_counts_the_passes_that_were_captured(path: Path) -> None:
    probe = Probe(path)
    probe.begin_capture()
    for _ in range(4):
        probe.count_call()
    probe.end_capture(1)
    assert Counts.read(path).passes == 0
    probe.count_replay(1)
    probe.count_replay(1)
    assert Counts.read(path) == Counts(replayed=8, graphs=1)


def test_an_id_that_comes_back_counts_the_passes_of_its_new_graph(path: Path) -> None:
    probe = Probe(path)
    for passes in (4, 1):
        probe.begin_capture()
        for _ in range(passes):
            probe.count_call()
        probe.end_capture(1)
    probe.count_replay(1)
    assert Counts.read(path) == Counts(replayed=1, graphs=1)


def test_a_graph_without_a_pass_of_the_drafter_counts_nothing(path: Path) -> None:
    probe = Probe(path)
    probe.begin_capture()
    probe.end_capture(2)
    probe.count_replay(2)
    assert Counts.read(path) == Counts()
