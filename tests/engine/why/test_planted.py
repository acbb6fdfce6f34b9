"""Every cause, planted in simulated traffic: it is named first, and what goes along is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.support.engine_state import engine_state
from tests.support.simulated_traffic import T0, Accept, Request, Traffic, usual
from tests.support.tuned_engine import tuning

from specdeck.engine.protocol.full_graphs import Reach
from specdeck.engine.protocol.tuning import CurvePoint, Outlook
from specdeck.engine.why.causes import MATERIAL, RULED_OUT, Group, RuledOut, trial_of
from specdeck.engine.why.evidence import DraftFacts
from specdeck.engine.why.ranking import Diagnosis, diagnose
from specdeck.engine.why.words import describe_look

SEEDS = (1, 2, 3)
Test = Callable[[Request], bool]


def poor(test: Test, by: float = 0.35) -> Accept:
    """Some requests are accepted less."""
    return lambda request, t: 0.72 - by if test(request) else 0.72


def first(found: Diagnosis) -> str | None:
    """The cause that is named first."""
    return found.causes[0].name if found.causes else None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "by", "words", "test"),
    [
        ("prompt_length", "prompt", ("1024-4095",), lambda r: r.prompt >= 1024),
        ("prompt_length", "prompt", ("16-63",), lambda r: r.prompt < 64),
        ("structured_output", "structured", ("json", "regex"), lambda r: r.structured != "none"),
        ("structured_output", "structured", ("json",), lambda r: r.structured == "json"),
        ("adapter", "adapter", ("sql",), lambda r: r.adapter == "sql"),
        ("temperature", "temperature", ("sampled",), lambda r: r.sampled),
    ],
)
def test_the_kind_of_request_that_suffers_is_named(
    name: str, by: str, words: tuple[str, ...], test: Test, seed: int
) -> None:
    found = diagnose(Traffic(seed, rate=10.0, accept=poor(test)).run(40).evidence())
    assert first(found) == name
    group = found.causes[0].group
    assert group is not None
    assert (group.by, group.words) == (by, words)
    cost = found.causes[0].cost
    assert cost is not None
    assert 0 < cost.low < cost.value < cost.high
    assert len(found.causes) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_cached_prompts_that_the_draft_has_not_seen_are_named(seed: int) -> None:
    accept = poor(lambda r: r.cached * 4 >= r.prompt, 0.6)
    found = diagnose(Traffic(seed, rate=8.0, accept=accept).run(40).evidence())
    assert first(found) == "cold_cache"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_only_goes_along_with_the_cause_is_not_named(seed: int) -> None:
    """Nine of ten JSON requests have long prompts; JSON is what suffers."""

    def draw(random: Random) -> Request:
        request = usual(random)
        if request.structured == "none":
            return request
        prompt = random.randrange(1024, 4000) if random.random() < 0.9 else 100
        return replace(request, prompt=prompt, cached=0)

    accept = poor(lambda r: r.structured != "none")
    found = diagnose(Traffic(seed, draw=draw, rate=8.0, accept=accept).run(60).evidence())
    assert first(found) == "structured_output"
    assert "prompt_length" not in {cause.name for cause in found.causes}


@pytest.mark.parametrize("seed", SEEDS)
def test_two_causes_are_both_named_the_larger_first(seed: int) -> None:
    def accept(request: Request, t: float) -> float:
        return 0.8 - 0.45 * request.sampled - 0.3 * (request.adapter == "sql")

    found = diagnose(Traffic(seed, rate=12.0, accept=accept).run(60).evidence())
    assert [cause.name for cause in found.causes] == ["temperature", "adapter"]
    assert sum(cause.share or 0.0 for cause in found.causes) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cohort_that_decays_is_a_drift_and_one_that_fell_is_not(seed: int) -> None:
    def decay(request: Request, t: float) -> float:
        return 0.72 - (0.6 * t / 90 if request.prompt >= 1024 else 0.0)

    found = diagnose(Traffic(seed, rate=8.0, accept=decay).run(90).evidence())
    assert first(found) == "cohort_drift"
    group = found.causes[0].group
    assert group is not None
    assert group.by == "prompt"

    static = poor(lambda r: r.prompt >= 1024, 0.4)
    found = diagnose(Traffic(seed, rate=8.0, accept=static).run(90).evidence())
    assert first(found) == "prompt_length"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_decay_that_bends_is_one_of_the_kind_that_decays(seed: int) -> None:
    """And not of the part of it that a straight line happens to fit best."""

    def draw(random: Random) -> Request:
        if random.random() < 0.65:
            return Request(prompt=40, cached=random.choice([0, 12]), output=64)
        return Request(prompt=128, cached=random.choice([0, 0, 0, 100, 100]), output=64)

    def decay(request: Request, t: float) -> float:
        return 0.84 - (0.75 * (t / 55) ** 3 if request.prompt >= 64 else 0.0)

    found = diagnose(Traffic(seed, draw=draw, rate=30.0, accept=decay).run(55).evidence())
    assert [cause.name for cause in found.causes] == ["cohort_drift"]
    group = found.causes[0].group
    assert group is not None
    assert group.by == "prompt"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kind_that_was_poor_from_the_beginning_is_named_by_its_kind(seed: int) -> None:
    """Though it became a little poorer as well."""

    def accept(request: Request, t: float) -> float:
        return 0.84 - (0.2 + 0.14 * t / 40 if request.sampled else 0.0)

    found = diagnose(Traffic(seed, rate=20.0, accept=accept).run(40).evidence())
    assert first(found) == "temperature"
    assert "cohort_drift" not in {cause.name for cause in found.causes}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_latched_step_is_found_with_its_moment(seed: int) -> None:
    found = diagnose(Traffic(seed, slow=lambda t: 0.006 if t > 20 else 0.0).run(40).evidence())
    assert first(found) == "step_time_latched"
    cause = found.causes[0]
    assert cause.since is not None
    assert abs(cause.since - (T0 + 20)) < 2
    assert 4 < cause.effect.value < 8  # ms


@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_became_slower_is_no_latch(seed: int) -> None:
    """Long steps lose more than short ones, then."""
    traffic = Traffic(seed, factor=lambda t: 1.5 if t > 20 else 1.0, prefill_s=1.5e-4)
    found = diagnose(traffic.run(40).evidence())
    assert "step_time_latched" not in {cause.name for cause in found.causes}
    untold = {one.name: one.reason for one in found.untold}
    assert untold["step_time_latched"] == "in_proportion"


def test_a_stretch_of_slow_steps_that_is_over_is_no_latch() -> None:
    found = diagnose(Traffic(4, slow=lambda t: 0.006 if 12 < t < 20 else 0.0).run(40).evidence())
    assert "step_time_latched" not in {cause.name for cause in found.causes}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_that_was_latched_before_the_look_is_found_against_a_baseline(seed: int) -> None:
    baseline = Traffic(seed).run(30).as_baseline()
    found = diagnose(Traffic(seed + 50, slow=lambda t: 0.006).run(30).evidence(baseline))
    assert first(found) == "step_time_latched"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gap_that_was_always_there_stands_below_what_became_worse(seed: int) -> None:
    gap = poor(lambda r: r.prompt >= 64, 0.6)
    baseline = Traffic(seed, rate=10.0, accept=gap).run(40).as_baseline()
    worse = Traffic(seed + 50, rate=10.0, accept=gap, slow=lambda t: 0.006).run(40)
    found = diagnose(worse.evidence(baseline))
    assert [(cause.name, cause.movement) for cause in found.causes] == [
        ("step_time_latched", "unknown"),
        ("prompt_length", "always"),
    ]
    costs = [cause.cost.value for cause in found.causes if cause.cost is not None]
    assert costs[0] < costs[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_that_adapters_make_dearer_are_not_called_latched(seed: int) -> None:
    def none(random: Random) -> Request:
        return replace(usual(random), adapter="none")

    baseline = Traffic(seed, draw=none, rate=10.0).run(40).as_baseline()
    accept = poor(lambda r: r.adapter != "none", 0.6)
    now = Traffic(seed + 50, rate=10.0, accept=accept, slow=lambda t: 0.006).run(40)
    found = diagnose(now.evidence(baseline))
    assert first(found) == "adapter"
    untold = {one.name: one.reason for one in found.untold}
    assert untold["step_time_latched"] == "other_requests"
    # With as many of them before, it is no excuse.
    before = Traffic(seed, rate=10.0, accept=accept).run(40).as_baseline()
    assert first(diagnose(now.evidence(before))) == "step_time_latched"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mean_that_fell_by_the_mix_is_told_from_cohorts_that_fell(seed: int) -> None:
    def draw(share: float) -> Callable[[Random], Request]:
        return lambda random: replace(usual(random), sampled=random.random() < share)

    accept = poor(lambda r: r.sampled, 0.3)
    before = Traffic(seed, draw=draw(0.1), rate=10.0, accept=accept).run(60).as_baseline()
    now = Traffic(seed + 50, draw=draw(0.7), rate=10.0, accept=accept).run(60)
    found = diagnose(now.evidence(before))
    assert first(found) == "temperature"
    assert found.causes[0].movement == "more"
    assert found.moved is not None
    assert found.moved.mix < -0.1
    assert abs(found.moved.cohorts) < 0.08

    well_before = Traffic(seed, draw=draw(0.5), rate=10.0).run(60).as_baseline()
    now = Traffic(seed + 50, draw=draw(0.5), rate=10.0, accept=accept).run(60)
    found = diagnose(now.evidence(well_before))
    assert first(found) == "temperature"
    assert found.causes[0].movement == "fell"
    assert found.moved is not None
    assert abs(found.moved.mix) < 0.08
    assert found.moved.cohorts < -0.05


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kind_whose_answers_are_longer_is_more_of_the_traffic(seed: int) -> None:
    def draw(longer: int) -> Callable[[Random], Request]:
        def one(random: Random) -> Request:
            request = replace(usual(random), structured="none")
            if random.random() >= 0.2:
                return request
            return replace(request, structured="json", output=longer * request.output)

        return one

    accept = poor(lambda r: r.structured == "json", 0.3)
    before = Traffic(seed, draw=draw(1), rate=10.0, accept=accept).run(60).as_baseline()
    found = diagnose(
        Traffic(seed + 50, draw=draw(5), rate=10.0, accept=accept).run(60).evidence(before)
    )
    assert first(found) == "structured_output"
    assert found.causes[0].movement == "more"
    assert "traffic_mix" not in [one.name for one in found.causes]


def test_a_smaller_gap_between_kinds_is_a_mix_where_there_is_more_of_the_poor_ones() -> None:
    """By no kind alone, as both are short of a cause; together they pull the mean down."""
    found = diagnose(Traffic(9).run(30).evidence(Traffic(8).run(30).as_baseline()))
    assert "traffic_mix" not in {one.name for one in found.causes}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_ruled_out_that_may_take_more_than_a_twentieth(seed: int) -> None:
    for seconds in (10, 60):
        before = Traffic(seed, rate=10.0).run(seconds).as_baseline()
        found = diagnose(Traffic(seed + 50, rate=10.0).run(seconds).evidence(before))
        names = {"traffic_mix", "prefill_share"}
        some = [one for one in found.ruled_out if one.name in names]
        assert all(one.cost is None or one.cost.high <= RULED_OUT for one in some)
        left = {one.name for one in found.untold}
        assert names <= left | {one.name for one in found.ruled_out}


def test_what_is_comparable_of_a_span_is_found_once() -> None:
    span = Traffic(8).run(5).evidence().span
    assert span.comparable() is span.comparable()
    assert replace(span, cells={}).comparable().cells == {}


def test_a_mix_that_may_cost_next_to_nothing_is_no_cause() -> None:
    near, seen = 0, []
    for seed in range(12):
        accept = poor(lambda r: r.sampled, 0.12)
        before = Traffic(seed, rate=10.0, accept=accept).run(20).as_baseline()
        now = Traffic(seed + 50, draw=sampled, rate=10.0, accept=accept).run(20)
        found = diagnose(now.evidence(before))
        seen += [one.cost for one in found.causes if one.name == "traffic_mix"]
        wide = [one.cost for one in found.untold if one.name == "traffic_mix"]
        near += sum(one is not None and 0 < one.low < MATERIAL for one in wide)
    assert all(one is not None and one.low >= MATERIAL for one in seen)
    assert near


def test_a_mix_that_did_not_move_is_ruled_out_by_enough_requests() -> None:
    before = Traffic(8, rate=20.0).run(160).as_baseline()
    found = diagnose(Traffic(9, rate=20.0).run(160).evidence(before))
    assert "traffic_mix" in {one.name for one in found.ruled_out}


def test_an_idle_engine_has_no_slower_steps() -> None:
    """The steps that it remembers are of before the look."""
    busy = Traffic(3, rate=10.0).run(60).evidence()
    slow = [step._replace(seconds=(step.seconds or 0.0) * 3) for step in busy.steps]
    state = replace(engine_state(), running=0, waiting=0)
    span = replace(busy.span, cells={})
    idle = replace(busy, steps=(*busy.steps, *slow), span=span, series=(), state=state)
    found = diagnose(idle)
    assert found.causes == ()
    reasons = {one.name: one.reason for one in found.untold}
    assert reasons["step_time_latched"] == reasons["cpu_contention"] == "idle"
    found = diagnose(replace(idle, state=replace(state, running=1)))
    assert "idle" not in {one.reason for one in found.untold}


@pytest.mark.parametrize(
    ("switch", "off", "said"),
    [
        ({"breaker": "open"}, "breaker", "the breaker is open"),
        ({"mode": "target-only", "k": 0}, "mode", "the engine runs target-only"),
        ({"k": 0}, "k", "k is 0"),
        ({"method": None, "k": 0}, None, None),
        ({}, None, None),
    ],
    ids=str,
)
def test_what_keeps_an_engine_from_drafting_is_said_first(
    switch: dict[str, Any], off: str | None, said: str | None
) -> None:
    evidence = Traffic(3, rate=10.0).run(60).evidence()
    looked = diagnose(replace(evidence, state=replace(engine_state(), **switch))).looked
    assert (looked.off, looked.as_json()["off"]) == (off, off)
    line = describe_look(looked)
    assert line.partition("; nothing is drafted by then: ")[2] == (said or "")


def of_length(low: int, high: int) -> Callable[[Random], Request]:
    return lambda random: replace(usual(random), prompt=random.randrange(low, high), cached=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_that_take_longer_as_requests_do_are_no_slower_machine(seed: int) -> None:
    short, long = of_length(300, 900), of_length(6_000, 14_000)
    baseline = Traffic(seed, draw=short, rate=8.0).run(30).as_baseline()
    now = Traffic(seed + 50, draw=long, rate=8.0, slow=lambda t: 0.006, prefill_s=2e-6).run(30)
    turned = Traffic(seed, draw=short, rate=8.0, prefill_s=2e-6).run(20, pieces=6)
    turned.draw, turned.slow = long, lambda t: 0.006
    for evidence in (now.evidence(baseline), turned.run(20, pieces=6).evidence()):
        assert first(diagnose(evidence)) != "step_time_latched"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fall_of_every_cohort_is_told_and_another_draft_named(seed: int) -> None:
    old = DraftFacts("t", "d1", "v", "v")
    baseline = replace(Traffic(seed, rate=10.0).run(40).as_baseline(), facts=old)
    now = Traffic(seed + 50, rate=10.0, accept=lambda r, t: 0.45).run(40)
    found = diagnose(now.evidence(baseline, facts=old))
    assert first(found) == "every_cohort_fell"
    found = diagnose(now.evidence(baseline, facts=replace(old, draft="d2")))
    assert first(found) == "draft_of_another_target"
    assert found.causes[0].certain


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", [0.4, 0.7])
def test_a_fall_of_one_kind_that_is_too_few_to_compare_is_no_fall_of_all(
    seed: int, rate: float
) -> None:
    """An engine that has become slow finishes a dozen requests; four in ten are long ones."""

    def draw(random: Random) -> Request:
        return Request(prompt=200 if random.random() < 0.4 else 40)

    baseline = Traffic(seed, draw=draw, rate=10.0).run(60).as_baseline()
    accept = poor(lambda request: request.prompt >= 64, 0.7)
    now = Traffic(seed + 50, draw=draw, rate=rate, accept=accept).run(40)
    assert first(diagnose(now.evidence(baseline))) in (None, "prompt_length")


@pytest.mark.parametrize("seed", SEEDS)
def test_few_requests_that_all_fell_are_a_fall_of_all(seed: int) -> None:
    baseline = Traffic(seed, rate=10.0).run(60).as_baseline()
    now = Traffic(seed + 50, rate=0.8, accept=lambda r, t: 0.1).run(40)
    assert first(diagnose(now.evidence(baseline))) == "every_cohort_fell"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_few_requests_of_another_kind_do_not_hide_a_fall_of_all(seed: int) -> None:
    """Three in a hundred are long ones, as good or as bad by themselves as chance has it."""

    def draw(random: Random) -> Request:
        return Request(prompt=200 if random.random() < 0.03 else 40)

    baseline = Traffic(seed, draw=draw, rate=10.0).run(60).as_baseline()
    accept = poor(lambda request: request.prompt < 64, 0.7)
    now = Traffic(seed + 50, draw=draw, rate=10.0, accept=accept).run(40)
    assert first(diagnose(now.evidence(baseline))) in ("every_cohort_fell", "prompt_length")


def test_a_draft_that_nobody_accepts_or_of_another_vocabulary_is_of_another_target() -> None:
    found = diagnose(Traffic(1, accept=lambda r, t: 0.02).run(30).evidence())
    assert first(found) == "draft_of_another_target"
    assert not found.causes[0].certain
    odd = DraftFacts("t", "d", "v1", "v2")
    found = diagnose(Traffic(1).run(30).evidence(facts=odd))
    assert first(found) == "draft_of_another_target"
    assert found.causes[0].certain


def sampled(random: Random) -> Request:
    """Of a kind that the usual traffic has some of."""
    return replace(usual(random), sampled=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_draft_that_was_accepted_before_in_the_same_life_is_the_targets_own(seed: int) -> None:
    """What nobody accepts now is other text."""
    traffic = Traffic(seed, rate=10.0, accept=lambda r, t: 0.02 if t > 40 else 0.72)
    found = diagnose(traffic.run(40).forget().run(30).evidence())
    assert first(found) == "every_cohort_fell"
    assert RuledOut("draft_of_another_target", None) in found.ruled_out

    traffic = Traffic(seed, rate=10.0, accept=lambda r, t: 0.01 if r.sampled else 0.72)
    traffic.run(40).forget().draw = sampled
    found = diagnose(traffic.run(30).evidence())
    assert first(found) == "traffic_mix"


@pytest.mark.parametrize(("some", "movement"), [(0.0, "unknown"), (0.1, "more")])
@pytest.mark.parametrize("seed", SEEDS)
def test_another_mix_names_what_came_and_not_what_went(
    seed: int, some: float, movement: str
) -> None:
    """All requests are of that kind now, so that no other is left to compare it with."""

    def mixed(random: Random) -> Request:
        return replace(usual(random), sampled=random.random() < some)

    traffic = Traffic(seed, rate=10.0, accept=lambda r, t: 0.01 if r.sampled else 0.72, draw=mixed)
    traffic.run(40).forget().draw = sampled
    found = diagnose(traffic.run(30).evidence())
    cause = next(one for one in found.causes if one.name == "traffic_mix")
    assert (cause.group, cause.movement) == (Group("temperature", ("sampled",)), movement)
    assert trial_of(cause) == "policy=goodput"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_draft_that_nobody_ever_accepted_is_of_another_target(seed: int) -> None:
    never = Traffic(seed, rate=10.0, accept=lambda r, t: 0.02)
    assert first(diagnose(never.run(40).forget().run(30).evidence())) == "draft_of_another_target"


def test_a_few_requests_before_do_not_say_that_a_draft_fits() -> None:
    traffic = Traffic(1, rate=10.0, accept=lambda r, t: 0.02 if t > 4 else 0.72)
    found = diagnose(traffic.run(4).forget().run(30).evidence())
    assert first(found) == "draft_of_another_target"


def outlook(seconds: Callable[[int], float]) -> tuple[Outlook, ...]:
    """What was timed of each k, with an acceptance of long ago."""
    return tuple(Outlook(k, 1.0 + k / 2, (1.0 + k / 2) / seconds(k), True, False)
                 for k in range(6))  # fmt: skip


def test_a_k_beyond_what_pays_is_named_with_the_k_that_does() -> None:
    told = replace(tuning(), policy="fixed", outlook=outlook(lambda k: 0.01 + 0.002 * k))
    traffic = Traffic(1, rate=10.0, accept=lambda r, t: 0.3).run(40)
    found = diagnose(traffic.evidence(tuning=told))
    assert first(found) == "k_beyond_what_pays"
    assert found.causes[0].suggested in (1, 2)
    traffic = Traffic(1, rate=10.0, accept=lambda r, t: 0.9).run(40)
    found = diagnose(traffic.evidence(tuning=told))
    assert first(found) is None
    assert any(one.name == "k_beyond_what_pays" for one in found.ruled_out)


def test_a_k_that_was_timed_under_another_load_is_not_called_untimed() -> None:
    def judge(curve: tuple[CurvePoint, ...]) -> str:
        untimed = tuple(replace(one, timed=False) for one in outlook(lambda k: 0.01))
        told = replace(tuning(), policy="fixed", outlook=untimed, curve=curve)
        traffic = Traffic(1, rate=10.0, accept=lambda r, t: 0.9).run(40)
        found = diagnose(traffic.evidence(tuning=told))
        [reason] = [one.reason for one in found.untold if one.name == "k_beyond_what_pays"]
        return reason

    swept = tuple(CurvePoint(4, 4, 4.0, k, 64, 0.1, 40.0, 25.0, None, None, 9.0) for k in (0, 1, 2))
    assert judge(()) == "not_timed"
    assert judge(swept) == "not_timed_here"


@pytest.mark.parametrize("seed", SEEDS)
def test_preemption_is_named_with_its_rate(seed: int) -> None:
    def draw(random: Random) -> Request:
        return replace(usual(random), preemptions=int(random.random() < 0.4))

    traffic = Traffic(seed, draw=draw, rate=8.0, prefill_s=6e-5).run(40)
    found = diagnose(traffic.evidence())
    assert first(found) == "preemption"
    assert 0.25 < found.causes[0].effect.value < 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_prompts_that_left_the_cache_are_named_against_a_baseline(seed: int) -> None:
    def draw(share: float) -> Callable[[Random], Request]:
        def one(random: Random) -> Request:
            cached = 1800 if random.random() < share else 0
            return replace(usual(random), prompt=2000, cached=cached)

        return one

    baseline = Traffic(seed, draw=draw(0.8), rate=8.0).run(40).as_baseline()
    now = Traffic(seed + 50, draw=draw(0.05), rate=8.0).run(40)
    found = diagnose(now.evidence(baseline))
    assert first(found) == "prefix_cache"
    found = diagnose(Traffic(seed + 50, draw=draw(0.8), rate=8.0).run(40).evidence(baseline))
    assert first(found) is None


def test_prompts_that_take_half_of_the_time_are_named() -> None:
    def draw(random: Random) -> Request:
        return replace(usual(random), prompt=4000, cached=0)

    found = diagnose(Traffic(2, draw=draw, rate=12.0).run(40).evidence())
    assert first(found) == "prefill_share"


def test_batches_beyond_the_graphs_are_named_with_a_k_that_has_them() -> None:
    evidence = Traffic(3, batch=20).run(30).evidence()
    graphs = tuple(Reach(n, n) for n in (64, 48, 32, 16, 12, 10))
    found = diagnose(replace(evidence, state=engine_state(started=T0, full_graphs=graphs)))
    named = {cause.name: cause for cause in found.causes}
    assert named["beyond_graphs"].suggested == 2
    wide = tuple(Reach(64, 64) for _ in range(6))
    found = diagnose(replace(evidence, state=engine_state(started=T0, full_graphs=wide)))
    assert first(found) is None


def test_what_is_not_there_is_ruled_out_and_what_is_not_known_says_why() -> None:
    def alike(random: Random) -> Request:
        return Request(128, sampled=True)

    found = diagnose(Traffic(1, draw=alike).run(30).evidence())
    assert found.causes == ()
    ruled = {one.name: one for one in found.ruled_out}
    assert isinstance(ruled["adapter"], RuledOut)
    assert ruled["adapter"].cost is None
    untold = {one.name: one.reason for one in found.untold}
    assert untold["temperature"] == "no_contrast"
    assert untold["prefix_cache"] == "no_baseline"
    told = [*ruled, *untold]
    assert len(told) == len(set(told)) == 16


def test_too_few_requests_are_no_ground_for_anything() -> None:
    found = diagnose(Traffic(1, rate=0.3).run(10).evidence())
    assert found.causes == ()
    assert {one.reason for one in found.untold if one.name == "adapter"} == {"few_requests"}
