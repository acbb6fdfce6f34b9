"""What is said where k was lowered or raised since the baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from tests.support.simulated_traffic import T0, Request, Traffic, usual

from specdeck.engine.protocol.cohorts import CohortCounts, sum_counts
from specdeck.engine.protocol.messages import LastChange, Policy
from specdeck.engine.protocol.tuning import BreakerTuning, KChange, Tuning
from specdeck.engine.why.common_k import is_moved
from specdeck.engine.why.evidence import Baseline, CohortSpan, Evidence
from specdeck.engine.why.figures import own_tokens
from specdeck.engine.why.ranking import diagnose


def drafted_at(counts: CohortCounts, k: int) -> CohortCounts:
    """The same output, had the engine drafted `k` tokens: as often accepted at each position."""
    rates = [met / counts.drafts for met in counts.accepted_per_position[:k]]
    drafts = round(own_tokens(counts) / (1 + sum(rates)))
    rest = (0,) * (len(counts.drafted_per_position) - k)
    return replace(
        counts,
        drafts=drafts,
        drafted_per_position=(drafts,) * k + rest,
        accepted_per_position=(*(round(rate * drafts) for rate in rates), *rest),
    )


def span_at(span: CohortSpan, k: int) -> CohortSpan:
    cells = {cohort: drafted_at(counts, k) for cohort, counts in span.cells.items()}
    return CohortSpan(span.start, span.end, span.k_max, cells)


def look_at(k: int, baseline: Baseline, accept: float) -> Evidence:
    now = Traffic(51, rate=10.0, accept=lambda r, t: accept).run(40).evidence(baseline)
    return replace(now, span=span_at(now.span, k), series=())


@pytest.mark.parametrize(("then", "now"), [(5, 1), (5, 3), (1, 5), (2, 1)])
def test_another_k_is_no_fall_and_a_fall_is_seen_at_another_k(then: int, now: int) -> None:
    baseline = Traffic(1, rate=10.0).run(40).as_baseline()
    baseline = replace(baseline, span=span_at(baseline.span, then))
    for accept, causes in ((0.72, []), (0.4, ["every_cohort_fell"])):
        found = diagnose(look_at(now, baseline, accept))
        assert [one.name for one in found.causes] == causes


def test_a_k_that_was_changed_within_the_baseline_is_no_fall_either() -> None:
    before, after = (Traffic(seed, rate=10.0).run(40).as_baseline().span for seed in (1, 2))
    parts = [span_at(before, 5), span_at(after, 1)]
    cells = {
        cohort: sum_counts([span.cells[cohort] for span in parts if cohort in span.cells], 5)
        for cohort in {*parts[0].cells, *parts[1].cells}
    }
    mixed = CohortSpan(before.start, before.end, 5, cells)
    baseline = replace(Traffic(1, rate=10.0).run(40).as_baseline(), span=mixed)
    assert diagnose(look_at(1, baseline, 0.72)).causes == ()


def test_rounds_without_a_draft_while_k_was_0_are_no_fall_but_of_a_drafter_by_text() -> None:
    baseline = Traffic(1, rate=10.0).run(40).as_baseline()
    now = look_at(5, baseline, 0.72)
    idle = {  # a third of the output came without drafts
        cohort: replace(counts, output_tokens=round(1.5 * counts.output_tokens))
        for cohort, counts in now.span.cells.items()
    }
    now = replace(now, span=replace(now.span, cells=idle))
    assert now.state is not None
    for method, causes in (("eagle3", []), ("ngram", ["every_cohort_fell"])):
        found = diagnose(replace(now, state=replace(now.state, method=method)))
        assert [one.name for one in found.causes] == causes


def test_kinds_within_a_look_are_compared_at_its_own_k() -> None:
    """At the k of 1 of the baseline, three quarters of their difference are not to be seen."""
    baseline = Traffic(1, rate=10.0).run(40).as_baseline()
    baseline = replace(baseline, span=span_at(baseline.span, 1))
    poor = Traffic(51, rate=10.0, accept=lambda r, t: 0.55 if r.structured == "json" else 0.72)
    found = diagnose(poor.run(60).evidence(baseline))
    assert [one.name for one in found.causes] == ["structured_output"]
    assert found.causes[0].figure == diagnose(poor.evidence()).causes[0].figure


BY_OPERATOR: tuple[Callable[[float], int], ...] = (
    lambda t: 1 if t < 90 else 5,
    lambda t: 5 if t < 100 else 0,
    lambda t: 0 if t < 100 else 5,
    lambda t: 0 if 85 < t < 105 else 5,
)
BY_POLICY: tuple[Callable[[float], int], ...] = (
    lambda t: 0 if int(t) % 3 == 0 else 5,
    lambda t: 0 if int(t / 4) % 5 else 5,
)


def look_while_k_moves(seed: int, k_at: Callable[[float], int], accept: float) -> Evidence:
    """A minute of it, after a minute at the same k."""
    traffic = Traffic(seed, accept=lambda r, t: 0.72 if t < 60 else accept).run(60)
    baseline = traffic.as_baseline()
    traffic.k_at = k_at
    return traffic.forget().run(60).evidence(baseline)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("k_at", BY_OPERATOR)
def test_a_change_of_k_within_the_look_is_no_fall(k_at: Callable[[float], int], seed: int) -> None:
    change = LastChange(T0 + 95, "ann", None, {"k": k_at(0)}, {"k": k_at(200)}, "operator")
    for accept, causes in ((0.72, []), (0.45, ["every_cohort_fell"])):
        found = look_while_k_moves(seed, k_at, accept)
        assert found.state is not None
        state = replace(found.state, k=k_at(200), last_change=change)
        names = [one.name for one in diagnose(replace(found, state=state)).causes]
        assert names[:1] == causes


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("k_at", BY_POLICY)
def test_a_policy_that_drafts_nothing_for_a_time_is_no_fall(
    k_at: Callable[[float], int], seed: int
) -> None:
    for accept, causes in ((0.72, []), (0.45, ["every_cohort_fell"])):
        found = look_while_k_moves(seed, k_at, accept)
        assert found.state is not None
        found = replace(found, state=replace(found.state, policy="goodput"))
        assert [one.name for one in diagnose(found).causes][:1] == causes


class ShortUnderGrammars(Traffic):
    """Drafts of one token where JSON is asked for, whatever k is."""

    def _finish(self, request: Request, t: float) -> None:
        self.k_at = lambda now: 1 if request.structured == "json" else 5 - (now >= 90)
        super()._finish(request, t)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_grammar_keeps_short_hides_nothing_where_k_was_turned(seed: int) -> None:
    accept = {"json": 0.6}
    traffic = ShortUnderGrammars(
        seed, rate=12.0, accept=lambda r, t: accept.get(r.structured, 0.72)
    )
    found = traffic.run(60).forget().run(60).evidence()
    assert found.state is not None
    change = LastChange(T0 + 90, "ann", None, {"k": 5}, {"k": 4}, "operator")
    state = replace(found.state, k=4, last_change=change)
    names = [one.name for one in diagnose(replace(found, state=state)).causes]
    assert names == ["structured_output"]


def test_a_change_of_long_ago_moves_nothing_within_the_look() -> None:
    found = look_while_k_moves(1, lambda t: 5, 0.72)
    assert found.state is not None
    state = found.state
    for t, moves in ((T0 - 1, False), (T0 + 30, False), (T0 + 100, True)):
        change = LastChange(t, "ann", None, {"k": 1}, {"k": 5}, "operator")
        assert is_moved(replace(found, state=replace(state, last_change=change))) is moves
    knobs = {"k": 5, "mode": "target-only", "policy": "fixed"}
    before, after = ({**knobs, "fallback": word} for word in ("warm", "cold"))
    change = LastChange(T0 + 100, "ann", None, before, after, "operator")
    assert not is_moved(replace(found, state=replace(state, last_change=change)))


def look_while_kinds_shift(
    seed: int, k_at: Callable[[float], int], shares: tuple[float, float, float]
) -> Evidence:
    """Two minutes; so much of the traffic is JSON in the first, the middle and the last third."""
    traffic = Traffic(seed, k_at=k_at, rate=12.0)

    def draw(random: Random) -> Request:
        share = shares[min(2, int(traffic.t / 40))]
        structured = "json" if random.random() < share else "none"
        return replace(usual(random), adapter="none", structured=structured)

    traffic.draw = draw
    return traffic.run(120).evidence()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("low", [1, 3])
def test_a_kind_that_came_while_a_policy_chose_k_is_no_cause(seed: int, low: int) -> None:
    found = look_while_kinds_shift(seed, lambda t: low if t < 60 else 5, (0.9, 0.3, 0.0))
    assert found.state is not None
    fixed = {"k": 5, "mode": "speculate", "policy": "fixed"}
    change = LastChange(T0 + 60, "ann", None, {**fixed, "policy": "goodput"}, fixed, "operator")
    for before in ({**fixed, "k": low}, {**fixed, "policy": "goodput"}):
        state = replace(found.state, last_change=replace(change, before=before))
        assert diagnose(replace(found, state=state)).causes == ()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_kind_that_came_while_the_breaker_was_open_is_no_cause(seed: int) -> None:
    found = look_while_kinds_shift(seed, lambda t: 0 if 40 < t < 80 else 5, (0.2, 0.7, 0.2))
    moved = tuning_with(BreakerTuning("closed", True, reason="a loss", since_s=40.0))
    assert diagnose(replace(found, tuning=moved)).causes == ()
    for still in (BreakerTuning("closed", True), replace(moved.breaker, since_s=9000.0)):
        assert not is_moved(replace(found, tuning=tuning_with(still)))


def tuning_with(breaker: BreakerTuning) -> Tuning:
    return Tuning("one", 1, T0, "fixed", None, (), (), breaker)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_kind_that_came_before_the_last_but_one_change_is_no_cause(seed: int) -> None:
    """From k = 1 to 3 to 5: what the last change knows of begins at 3."""
    found = look_while_kinds_shift(seed, lambda t: (1, 3, 5)[min(2, int(t / 40))], (0.9, 0.3, 0.0))
    assert found.state is not None
    moves = tuple(KChange(T0 + t, k, k + 2, "set", "ann") for t, k in ((40, 1), (80, 3)))
    change = LastChange(T0 + 80, "ann", None, {"k": 3}, {"k": 5}, "operator")
    found = replace(
        found,
        state=replace(found.state, last_change=change),
        tuning=replace(tuning_with(BreakerTuning("closed", True)), changes=moves),
    )
    assert diagnose(found).causes == ()


@pytest.mark.parametrize("low", [0, 1, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kind_that_came_in_a_burst_under_a_policy_is_no_cause(seed: int, low: int) -> None:
    """Each of its prompt lengths is a cohort with a small part of the drafts of the others'."""
    burst = (100, 115)
    traffic = Traffic(seed, k_at=lambda t: low if burst[0] < t < burst[1] else 5, rate=6.0)

    def draw(random: Random) -> Request:
        if burst[0] <= traffic.t < burst[1] and random.random() < 0.85:
            prompt = int(2 ** random.uniform(5, 12))
            sampled = random.random() < 0.4
            return Request(prompt=prompt, output=70, structured="json", sampled=sampled)
        return Request(prompt=200, output=random.randrange(40, 160))

    traffic.draw = draw
    for seconds, rate in ((100, 6.0), (15, 40.0), (125, 6.0)):
        traffic.rate = rate
        traffic.run(seconds, pieces=1)
    found = traffic.evidence()
    assert found.state is not None
    found = replace(found, state=replace(found.state, policy="goodput"))
    assert diagnose(found).causes == ()


@pytest.mark.parametrize("behind_s", [0, 25, 3600])
def test_moves_of_k_are_heeded_where_the_clock_is_behind_the_engines(behind_s: int) -> None:
    found = look_while_kinds_shift(1, lambda t: 1 if t < 60 else 5, (0.9, 0.3, 0.0))
    assert found.state is not None
    change = LastChange(T0 + 60, "ann", None, {"k": 1}, {"k": 5}, "operator")
    state = replace(found.state, last_change=change)
    assert diagnose(replace(found, state=state, t=found.t - behind_s)).causes == ()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_kind_that_came_while_a_drafter_by_text_was_off_is_no_cause(seed: int) -> None:
    traffic = Traffic(seed, k_at=lambda t: 0 if 40 < t < 60 else 5, rate=12.0)

    def draw(random: Random) -> Request:
        share = 0.9 if 40 < traffic.t < 60 else 0.1
        structured = "json" if random.random() < share else "none"
        return replace(usual(random), adapter="none", structured=structured)

    traffic.draw = draw
    found = traffic.run(120, pieces=30).evidence()
    assert found.state is not None
    found = replace(found, state=replace(found.state, method="ngram"))
    moves = (KChange(T0 + 40, 5, 0, "set", "ann"), KChange(T0 + 60, 0, 5, "set", "ann"))
    tuning = replace(tuning_with(BreakerTuning("closed", True)), changes=moves)
    assert [one.name for one in diagnose(found).causes] == ["structured_output"]  # as if k stood
    assert diagnose(replace(found, tuning=tuning)).causes == ()


def test_a_kind_that_a_drafter_by_text_finds_less_for_is_named_though_it_was_off() -> None:
    accept = {"json": 0.3}
    found = Traffic(
        1, rate=12.0, k_at=lambda t: 0 if 40 < t < 60 else 5,
        accept=lambda r, t: accept.get(r.structured, 0.72),
    ).run(120, pieces=30).evidence()  # fmt: skip
    assert found.state is not None
    moves = (KChange(T0 + 40, 5, 0, "set", "ann"), KChange(T0 + 60, 0, 5, "set", "ann"))
    tuning = replace(tuning_with(BreakerTuning("closed", True)), changes=moves)
    found = replace(found, state=replace(found.state, method="ngram"), tuning=tuning)
    assert [one.name for one in diagnose(found).causes] == ["structured_output"]


def test_first_tokens_alone_rule_no_fall_out() -> None:
    baseline = Traffic(1, rate=10.0).run(40).as_baseline()
    baseline = replace(baseline, span=span_at(baseline.span, 1))
    found = diagnose(look_at(5, baseline, 0.68))
    assert "every_cohort_fell" not in [one.name for one in found.ruled_out]
    doubts = {one.name: one.reason for one in found.untold}
    assert doubts["every_cohort_fell"] in ("cut_drafts", "wide")


@pytest.mark.parametrize("then", [1, 2, 5])
def test_a_kind_that_is_as_much_of_the_traffic_is_not_more_of_it_at_another_k(then: int) -> None:
    accept = {"json": 0.4}
    traffic = Traffic(
        3, rate=12.0, k_at=lambda t: then if t < 100 else 5,
        accept=lambda r, t: accept.get(r.structured, 0.85),
    )  # fmt: skip
    traffic.draw = lambda random: replace(
        usual(random), adapter="none", structured="json" if random.random() < 0.4 else "none"
    )
    baseline = traffic.run(100).as_baseline()
    found = diagnose(traffic.forget().run(100).evidence(baseline))
    movements = {one.name: one.movement for one in found.causes}
    assert movements["structured_output"] == "always"


def never_draft_json(span: CohortSpan) -> CohortSpan:
    """The same requests, with not a draft for JSON."""
    cells = {
        cohort: replace(
            counts, drafts=0, drafted_per_position=(0,) * 5, accepted_per_position=(0,) * 5
        )
        if cohort.structured == "json"
        else counts
        for cohort, counts in span.cells.items()
    }
    return replace(span, cells=cells)


@pytest.mark.parametrize("policy", ["fixed", "goodput"])
def test_a_kind_that_is_never_drafted_for_is_not_ruled_out_under_a_policy(policy: Policy) -> None:
    traffic = Traffic(5, rate=12.0)
    traffic.draw = lambda random: replace(
        usual(random), adapter="none", structured="json" if random.random() < 0.5 else "none"
    )
    found = traffic.run(100).evidence()
    assert found.state is not None
    state = replace(found.state, policy=policy)
    span, series = never_draft_json(found.span), tuple(map(never_draft_json, found.series))
    said = diagnose(replace(found, span=span, series=series, state=state))
    assert "structured_output" not in [one.name for one in said.ruled_out]
    if policy == "fixed":
        assert said.causes[0].name == "structured_output"
    else:  # k may have been 0 whenever such requests came
        reasons = {one.name: one.reason for one in said.untold}
        assert reasons["structured_output"] == "cut_drafts"


def test_a_policy_that_leaves_k_alone_leaves_nothing_in_doubt() -> None:
    found = Traffic(5, rate=12.0).run(200).evidence()
    assert found.state is not None
    steady = diagnose(replace(found, state=replace(found.state, policy="goodput")))
    assert steady.causes == ()
    assert "cut_drafts" not in [one.reason for one in steady.untold]
    assert [one.name for one in steady.ruled_out] == [one.name for one in diagnose(found).ruled_out]
