"""Whatever an engine tells, there is an answer or a line that says why not; never a defect."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine_state import engine_state
from tests.support.simulated_traffic import T0, URL

from specdeck.console.cli.why import diagnosis_lines
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.cohorts import (
    MOST_ADAPTERS,
    MOST_CELLS,
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
)
from specdeck.engine.protocol.full_graphs import Reach
from specdeck.engine.protocol.requests import RequestLine
from specdeck.engine.protocol.tuning import BreakerTuning, Outlook, Tuning
from specdeck.engine.why.cohort_gaps import list_splits
from specdeck.engine.why.evidence import CohortSpan
from specdeck.engine.why.gather import make_evidence
from specdeck.engine.why.ranking import diagnose

numbers = st.one_of(
    st.integers(0, 400), st.integers(-5, 5), st.sampled_from([2**53, -(2**53), 10**18])
)
reals = st.one_of(st.floats(0, 1), st.sampled_from([0.0, -1.0, 1e18, -1e18, 5e-324]), st.none())
words = st.sampled_from(["none", "json", "greedy", "sampled", "0%", "75-100%", "256-1023",
                         "4-15", "", "\x1b[2J", "no", "yes", "other"])  # fmt: skip


@st.composite
def replies(draw: st.DrawFn) -> Cohorts:
    k = draw(st.integers(0, 3))
    honest = draw(st.booleans())

    def row() -> tuple[int, ...]:
        length = k if honest else draw(st.integers(0, 4))
        return tuple(draw(numbers) for _ in range(length))

    def counts() -> CohortCounts:
        a, b, c, d, e = (draw(numbers) for _ in range(5))
        return CohortCounts(a, b, c, d, e, row(), row())

    cells = tuple(
        CohortCell(Cohort(*(draw(words) for _ in range(8))), counts())
        for _ in range(draw(st.integers(0, 5)))
    )
    t = T0 + draw(st.integers(-10, 100))
    return Cohorts("one", float(t), cells, (), counts(), draw(numbers), (0,) * k, row())


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    found = []
    for number in range(draw(st.integers(0, 60))):
        requests, prefill = draw(numbers), draw(numbers)
        found.append(Step(number, draw(st.floats(-1e9, 1e9)), requests, 1, draw(st.integers(0, 9)),
                          1, 1, 1, draw(reals), draw(numbers), (), prefill))  # fmt: skip
    return found * draw(st.integers(1, 8))


lines = st.lists(
    st.builds(
        RequestLine, st.integers(0, 99), st.just("stop"), st.just(1.0), numbers, numbers,
        st.none(), numbers, numbers, numbers, numbers, words, words, words, words, st.just(0),
        st.just(T0),
    ),
    max_size=40,
)  # fmt: skip
outlooks = st.lists(
    st.builds(Outlook, st.integers(0, 8), st.floats(-10, 1e9), reals, st.booleans(), st.booleans()),
    max_size=6,
)


@settings(max_examples=60)
@given(st.lists(replies(), min_size=1, max_size=4), steps(), lines, outlooks, st.integers(0, 9))
def test_nothing_that_is_told_is_a_defect(
    told: list[Cohorts], made: list[Step], listed: list[RequestLine], seen: list[Any], k: int
) -> None:
    state = engine_state(k=k, full_graphs=tuple(Reach(n, n) for n in (8, 4, 2)), started=T0)
    tuning = Tuning("one", 1, T0, "fixed", None, (), (), BreakerTuning("closed", True),
                    outlook=tuple(seen))  # fmt: skip
    with suppress(SpecdeckError):
        evidence = make_evidence(
            URL, told, listed, state=state, tuning=tuning, steps=made, t=T0,
        )  # fmt: skip
        for one in (evidence, replace(evidence, preemptions=10**18, preempted_context=-5.0)):
            found = diagnose(one)
            assert found.as_json()
            assert "\x1b" not in "\n".join(diagnosis_lines(found))


def test_what_is_compared_is_bounded_whatever_is_told() -> None:
    outputs = ("16-63", "64-255")
    prompts = [f"{4**n}-{4 ** (n + 1) - 1}" for n in range(14)]
    cells = tuple(
        CohortCell(
            Cohort(prompt, "0%", output, f"adapter-{n}", "none", "greedy", "no", "stop"),
            CohortCounts(9, 90, 909, 0, 300, (300,), (30 if n == 7 else 240,)),
        )
        for prompt in prompts
        for n in range(288)
        for output in outputs
    )
    everything = CohortCounts(0, 0, 0, 0, 0, (0,), (0,))
    told = Cohorts("one", T0 + 60, cells, (), everything, 0, (0,), (0,))
    span = make_evidence(URL, [told], [], state=engine_state(started=T0), t=T0 + 60).span
    compared = span.comparable()
    assert len(span.cells) == 14 * 288 * 2
    assert len(compared.cells) == 2 * MOST_CELLS
    assert {counts.requests for counts in compared.cells.values()} == {18}  # of both outputs
    # Each adapter and each end of the prompts, for as many words as an engine tells apart.
    assert len(list_splits(compared)) <= 2 * 14 + 2 * MOST_ADAPTERS + 1


def test_the_kinds_with_the_most_tokens_are_compared() -> None:
    cells = {
        Cohort("4-15", "0%", "16-63", f"a{n}", "none", "greedy", "no", "stop"):
        CohortCounts(2, 20, 40 + n, 0, 10, (10,), (5,))
        for n in range(3000)
    }  # fmt: skip
    span = CohortSpan(T0, T0 + 60, 1, cells)
    kept = {cohort.adapter for cohort in span.comparable().cells}
    assert kept == {f"a{n}" for n in range(3000 - 2 * MOST_CELLS, 3000)}
    asked = {split.group.words for split in list_splits(span) if len(split.group.words) == 1}
    assert asked == {(f"a{n}",) for n in range(3000 - 2 * MOST_ADAPTERS, 3000)}
