"""Steps that became slower, told from other steps that came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.support.simulated_traffic import T0, Traffic

from specdeck.engine.policy.step import Step
from specdeck.engine.why import step_shift
from specdeck.engine.why.causes import Cause
from specdeck.engine.why.evidence import Evidence
from specdeck.engine.why.step_profile import TimedStep, timed_steps
from specdeck.engine.why.step_shift import compare_steps, find_latch


def some(count: int, requests: int, seconds: float, seed: int) -> Iterator[tuple[int, float]]:
    """Steps of one batch, with noise of 3 %."""
    random = Random(seed)
    for _ in range(count):
        yield requests, seconds * random.gauss(1.0, 0.03)


def by_turns(*kinds: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """One of each, again and again."""
    return [step for turn in zip(*kinds, strict=True) for step in turn]


def latch(steps: list[tuple[int, float]]) -> object:
    """What is said of steps one after the other."""
    made, t = [], T0
    for number, (requests, seconds) in enumerate(steps):
        t += seconds
        made.append(
            Step(number, t, requests, 5 * requests, 4, requests, 4 * requests, 2 * requests,
                 seconds, 3 * requests)
        )  # fmt: skip
    return find_latch(timed_steps(made), evidence(made))


def evidence(steps: list[Step]) -> Evidence:
    """Of an engine that made the steps."""
    found = Traffic(1).run(4).evidence()
    return replace(found, t=steps[-1].t, steps=tuple(steps))


def test_other_steps_are_no_slower_ones() -> None:
    """Short answers of a large batch run out while a small one of long contexts begins."""
    between = by_turns(some(20, 24, 0.012, 3), some(20, 4, 0.012, 4))
    found = latch([*some(600, 24, 0.012, 1), *between, *some(600, 4, 0.030, 2)])
    assert not isinstance(found, Cause), found


def test_steps_without_their_like_before_say_nothing() -> None:
    between = by_turns(some(10, 24, 0.012, 3), some(10, 4, 0.012, 4))
    found = latch([*some(600, 24, 0.012, 1), *between, *some(600, 4, 0.030, 2)])
    assert not isinstance(found, Cause), found


def test_a_few_steps_while_a_larger_load_comes_up_do_not_speak_for_all() -> None:
    """Its prompts keep the machine busy meanwhile; then no step is of the kind that was before."""
    rising = [*some(40, 6, 0.020, 2), *some(600, 28, 0.021, 3)]
    found = latch([*some(600, 6, 0.009, 1), *rising])
    assert not isinstance(found, Cause), found


def test_the_figure_is_of_steps_of_the_same_kinds() -> None:
    mixed = by_turns(some(300, 24, 0.020, 3), some(300, 4, 0.010, 4))
    later = [(requests, seconds + 0.006) for requests, seconds in mixed]
    found = latch([*mixed, *later, *some(50, 60, 0.1, 5)])
    assert isinstance(found, Cause)
    assert found.figure.against is not None
    assert abs(found.figure.value - found.figure.against - 6) < 0.5
    assert 14 < found.figure.against < 16


def test_steps_of_the_look_are_held_against_the_baseline_and_not_those_remembered() -> None:
    """A machine that is busy by turns hides the moment, and most of what is remembered is older."""

    def by_turns_busy(t: float) -> float:
        return 2.5 if t < 100 and int(t / 7) % 2 else 1.0

    baseline = Traffic(3).run(20).as_baseline()
    traffic = Traffic(4, factor=by_turns_busy, slow=lambda t: 0.05 if t > 100 else 0.0).run(100)
    traffic.looks = traffic.looks[-1:]
    evidence = traffic.run(12).evidence(baseline)
    assert not isinstance(find_latch(timed_steps(evidence.steps), evidence), Cause)
    (found,) = compare_steps(evidence)
    assert isinstance(found, Cause)
    assert 45 < found.effect.value < 55


def test_of_many_kinds_of_steps_the_most_frequent_ones_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted: list[set[tuple[int, int, int]]] = []
    centre = step_shift._centre

    def count(steps: Sequence[TimedStep]) -> list[float]:
        fitted.append({step.kind for step in steps})
        return centre(steps)

    monkeypatch.setattr(step_shift, "_centre", count)
    random = Random(1)
    kinds = [(4, k, 0) for k in range(200) for _ in range(16 + k % 3)]
    random.shuffle(kinds)
    timed = [TimedStep(T0 + n, kind, 0.01, 0) for n, kind in enumerate(kinds)]
    find_latch(timed, evidence([Step(1, T0, 4, 4, 4, 0, 0, 0, 0.01, 4)]))
    (found,) = fitted
    assert len(found) == 64
    assert all(k % 3 == 2 for _, k, _ in found)
