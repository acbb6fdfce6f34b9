"""A machine that other work shares, told from steps that became slower by themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.simulated_traffic import T0, Traffic

from specdeck.engine.metrics.sample import Sample
from specdeck.engine.why.baseline_file import load_baseline, save_baseline
from specdeck.engine.why.causes import Cause, command_of
from specdeck.engine.why.cpu_wait import CpuWait, read_waits
from specdeck.engine.why.evidence import Evidence
from specdeck.engine.why.ranking import Diagnosis, diagnose
from specdeck.engine.why.words import describe_cause

SEEDS = (1, 2, 3)
MOMENT = 20.0
"""At which something begins, of 40 seconds."""


def waits(before: float, after: float, *, most: float | None = None) -> tuple[CpuWait, ...]:
    """Shares of the time that threads waited, before and after the moment."""
    found = []
    for start in range(0, 40, 4):
        share = (before if start < MOMENT else after) * (1 + 0.02 * (start % 3 - 1))
        upper = share if most is None or start < MOMENT else most
        found.append(CpuWait(T0 + start, T0 + start + 4, share, upper))
    return tuple(found)


def slower(seed: int, by: float = 0.010) -> Traffic:
    """Steps of 20 ms that take some more, all the same, from the moment on."""
    return Traffic(seed, slow=lambda t: by if t > MOMENT else 0.0).run(40)


def look(evidence: Evidence) -> tuple[Diagnosis, list[str], dict[str, str]]:
    """What is named, and what is not told, and why not."""
    found = diagnose(evidence)
    return (
        found,
        [cause.name for cause in found.causes],
        {one.name: one.reason for one in found.untold},
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_that_waiting_explains_are_not_latched(seed: int) -> None:
    evidence = slower(seed).evidence(waits=waits(0.02, 0.36))
    found, names, untold = look(evidence)
    assert names == ["cpu_contention"]
    assert untold["step_time_latched"] == "cpu_contention"
    cause = found.causes[0]
    assert cause.since is not None
    assert abs(cause.since - (T0 + MOMENT)) < 2
    assert cause.cost is not None
    assert 0.2 < cause.cost.value < 0.4


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_steps_that_waiting_does_not_explain_are(seed: int, share: float) -> None:
    """Every step takes 60 ms more, beside a neighbour or not."""
    evidence = slower(seed, 0.060).evidence(waits=waits(0.02, share))
    found, names, _ = look(evidence)
    assert names[0] == "step_time_latched"
    effect = found.causes[0].effect
    assert 60 - 80 * share - 5 < effect.value < 61
    assert effect.low <= effect.value <= effect.high


@pytest.mark.parametrize("seed", SEEDS)
def test_waiting_that_was_there_before_explains_nothing_new(seed: int) -> None:
    evidence = slower(seed, 0.020).evidence(waits=waits(0.4, 0.4))
    _, names, _ = look(evidence)
    assert "step_time_latched" in names


def test_what_only_the_engine_core_waited_is_the_most_that_it_explains() -> None:
    evidence = slower(1).evidence(waits=waits(0.01, 0.02, most=0.8))
    found, names, untold = look(evidence)
    assert names == ["cpu_contention"]
    assert untold["step_time_latched"] == "cpu_contention"
    assert found.causes[0].figure.value > 10


def test_an_engine_that_does_not_tell_is_judged_as_ever() -> None:
    _, names, untold = look(slower(1).evidence())
    assert names == ["step_time_latched"]
    assert untold["cpu_contention"] == "no_waiting"


def test_an_engine_that_has_its_cpus_for_itself_rules_it_out() -> None:
    evidence = Traffic(1).run(40).evidence(waits=waits(0.03, 0.03))
    found, names, _ = look(evidence)
    assert names == []
    assert "cpu_contention" in {one.name for one in found.ruled_out}


def test_waiting_is_named_with_its_share_and_its_milliseconds() -> None:
    evidence = Traffic(1).run(40).evidence(waits=waits(0.3, 0.3))
    found, names, _ = look(evidence)
    assert names == ["cpu_contention"]
    cause = found.causes[0]
    assert cause.cost is not None
    assert 0.28 < cause.cost.low < cause.cost.value < cause.cost.high < 0.32
    assert cause.figure.of == "waiting_ms"
    assert 5 < cause.figure.value < 8
    assert "ms of a step for a CPU" in " ".join(describe_cause(cause))
    assert command_of(cause, "http://e").startswith("top ")


def test_a_quota_is_told_from_neighbours() -> None:
    held = tuple(replace(one, throttled=0.25) for one in waits(0.3, 0.3))
    cause = diagnose(Traffic(1).run(40).evidence(waits=held)).causes[0]
    assert cause.throttled == pytest.approx(0.25)
    assert "cpu.max" in command_of(cause, "http://e")
    assert "a quota kept it from running 25 % of the time" in describe_cause(cause)


def test_against_a_baseline_it_is_new_or_as_ever(tmp_path: Path) -> None:
    quiet = Traffic(1).run(40).evidence(waits=waits(0.03, 0.03))
    shared = Traffic(2).run(40).evidence(waits=waits(0.3, 0.3))
    for before, movement in ((quiet, "fell"), (shared, "always")):
        save_baseline(tmp_path / "b", before)
        baseline = load_baseline(tmp_path / "b")
        assert baseline.waits == before.waits
        now = Traffic(3).run(40).evidence(baseline, waits=waits(0.3, 0.3))
        cause = diagnose(now).causes[0]
        assert (cause.name, cause.movement) == ("cpu_contention", movement)


def test_slower_steps_than_in_a_quiet_baseline_are_the_machines_where_threads_wait(
    tmp_path: Path,
) -> None:
    save_baseline(tmp_path / "b", Traffic(1).run(40).evidence(waits=waits(0.02, 0.02)))
    baseline = load_baseline(tmp_path / "b")
    now = Traffic(2, slow=lambda t: 0.010).run(40)
    _, names, _ = look(now.evidence(baseline, waits=waits(0.36, 0.36)))
    assert names == ["cpu_contention"]
    _, names, _ = look(now.evidence(baseline, waits=waits(0.02, 0.02)))
    assert names == ["step_time_latched"]


shares = st.floats(0, 1)


@given(st.lists(st.tuples(shares, shares), min_size=1, max_size=6), shares)
def test_whatever_waits_are_told_no_latch_is_made_of_them(
    found: list[tuple[float, float]], throttled: float
) -> None:
    told = tuple(
        CpuWait(T0 + n, T0 + n + 1, min(pair), max(pair), throttled) for n, pair in enumerate(found)
    )
    alone = _QUIET.causes
    assert alone == ()
    causes = diagnose(replace(_EVIDENCE, waits=told)).causes
    assert {cause.name for cause in causes} <= {"cpu_contention"}
    for cause in causes:
        assert isinstance(cause, Cause)
        assert cause.cost is not None
        assert 0 <= cause.cost.low <= cause.cost.value <= cause.cost.high <= 1


_EVIDENCE = Traffic(1).run(20).evidence()
_QUIET = diagnose(_EVIDENCE)


def sample(at: float, **figures: Any) -> Sample:
    return Sample(T0 + at, at, "demo", **figures)


def test_waits_are_read_piece_by_piece_and_are_unknown_where_nobody_watched() -> None:
    looks = [
        sample(0, cpu_watched=5.0, worker_ran=1.0, worker_waited=1.0, core_waited=0.0),
        None,
        sample(2, cpu_watched=7.0, worker_ran=2.0, worker_waited=1.5, core_waited=1.0),
        sample(4, cpu_watched=7.1, worker_ran=2.0, worker_waited=1.5, core_waited=1.0),
        sample(6),
    ]
    (found,) = read_waits(looks)
    assert (found.start, found.end) == (T0, T0 + 2)
    assert found.waiting == pytest.approx(0.25)
    assert found.most == pytest.approx(1 - 0.75 * (1 - 0.5 * 0.75))
    assert found.throttled is None
    assert read_waits([None, sample(1), sample(2)]) == ()


def test_an_engine_whose_workers_are_elsewhere_tells_of_its_core_alone() -> None:
    looks = [sample(0, cpu_watched=0.0, core_waited=0.0),
             sample(2, cpu_watched=2.0, core_waited=1.0)]  # fmt: skip
    (found,) = read_waits(looks)
    assert (found.waiting, found.most) == (0.0, 0.5)
