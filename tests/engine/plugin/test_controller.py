"""The control state: what is applied, refused and taken back."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from specdeck.engine.control.protocol import Change
from specdeck.engine.plugin.controller import Controller
from specdeck.engine.plugin.fingerprint_identity import Identity
from specdeck.engine.plugin.refusal import Refusal, change_from
from specdeck.engine.plugin.seam import Build, Tally

BUILD = Build(
    vllm="0.32.0", model="demo", method="draft_model", runner="V1", k_max=5, can_skip_drafter=True
)


@dataclass
class Engine:
    """Remembers what it was told, in order."""

    build: Build = BUILD
    told: list[tuple[str, Any]] = field(default_factory=list)
    k: int = 5

    def set_k(self, k: int) -> None:
        self.told.append(("k", k))
        self.k = k

    def set_table(self, table: Sequence[int]) -> None:
        self.told.append(("table", tuple(table[:2])))
        self.k = table[0]

    def restore_schedule(self) -> None:
        self.told.append(("schedule", None))

    def schedule(self) -> Sequence[int]:
        return [self.k] * 9

    def scheduled_k(self) -> int:
        return self.k

    def skip_drafter(self, on: bool) -> None:
        self.told.append(("skip", on))

    def resync(self) -> int:
        self.told.append(("resync", None))
        return 3

    def requests(self) -> tuple[int, int]:
        return 3, 1

    def tally(self) -> Tally:
        return Tally(7, 0, (0,) * 5, (0,) * 5)

    def steps(self, since: int) -> list[dict[str, Any]]:
        return []


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def control(engine: Engine, clock: Callable[[], float]) -> Controller:
    return configured(engine, clock, {"min_draft_length": 1, "initial_draft_length": 4})


def configured(
    engine: Engine,
    clock: Callable[[], float],
    orchestration: dict[str, Any],
    exact: tuple[str, ...] = (),
) -> Controller:
    return Controller(
        engine,
        Identity({"vllm": "0.32.0"}),
        instance="i",
        orchestration=orchestration,
        clock=clock,
        wall=clock,
        exact=exact,
    )


def fails(on: bool) -> None:
    raise RuntimeError("a worker is gone")


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def controller(engine: Engine, clock: Clock) -> Controller:
    return control(engine, clock)


def test_k_max_is_in_force_before_traffic(controller: Controller, engine: Engine) -> None:
    assert engine.told == [("k", 5)]
    assert controller.state().k == 5


def test_a_configured_schedule_stays_until_the_first_change(clock: Clock) -> None:
    engine = Engine(replace(BUILD, own_schedule=True))
    controller = control(engine, clock)
    assert engine.told == []
    assert "by batch size" in controller.change(Change(k=2)).notices[0]
    assert controller.change(Change(k=3)).notices == ()


def test_a_change_says_before_applied_and_its_step(controller: Controller) -> None:
    applied = controller.change(Change(k=3, who="ana", reason="trying"))
    assert (applied.before, applied.applied, applied.step) == ({"k": 5}, {"k": 3}, 7)
    state = controller.state()
    assert (state.k, state.k_set, state.version) == (3, 3, 1)
    assert state.last_change is not None
    assert (state.last_change.who, state.last_change.reason) == ("ana", "trying")


def test_k_zero_is_applied(controller: Controller, engine: Engine) -> None:
    assert controller.change(Change(k=0)).applied == {"k": 0}
    assert engine.k == 0


def test_target_only_keeps_the_operators_k(controller: Controller, engine: Engine) -> None:
    controller.change(Change(k=3))
    controller.change(Change(mode="target-only"))
    assert (engine.k, controller.state().k, controller.state().k_set) == (0, 0, 3)
    controller.change(Change(k=4))
    assert engine.k == 0
    controller.change(Change(mode="speculate"))
    assert engine.k == 4


def test_warm_target_only_leaves_the_drafter_running(
    controller: Controller, engine: Engine
) -> None:
    controller.change(Change(mode="target-only"))
    assert all(what != "skip" for what, _ in engine.told)


def test_cold_stops_drafting_before_the_drafter_and_resyncs_on_the_way_back(
    controller: Controller, engine: Engine
) -> None:
    engine.told.clear()
    controller.change(Change(mode="target-only", fallback="cold"))
    assert engine.told == [("k", 0), ("skip", True)]
    engine.told.clear()
    notices = controller.change(Change(mode="speculate")).notices
    assert engine.told == [("k", 5), ("skip", False), ("resync", None)]
    assert "3 requests preempted" in notices[0]


def test_leaving_cold_for_warm_resyncs_too(controller: Controller, engine: Engine) -> None:
    controller.change(Change(mode="target-only", fallback="cold"))
    engine.told.clear()
    controller.change(Change(fallback="warm"))
    assert engine.told == [("k", 0), ("skip", False), ("resync", None)]


def test_a_lease_takes_the_change_back(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    controller.change(Change(k=2, lease_s=10))
    clock.now += 9
    controller.tick()
    assert engine.k == 2
    clock.now += 1
    controller.tick()
    assert engine.k == 5
    state = controller.state()
    assert state.lease is None
    assert state.last_change is not None
    assert state.last_change.who == "specdeck"


def test_a_renewed_lease_lasts_longer_and_goes_back_as_far(
    controller: Controller, clock: Clock
) -> None:
    controller.change(Change(k=2, lease_s=10))
    clock.now += 9
    controller.change(Change(renew=True, lease_s=10))
    clock.now += 9
    assert controller.state().k == 2
    controller.change(Change(k=1, lease_s=10))
    clock.now += 11
    assert controller.state().k == 5


def test_a_change_without_lease_keeps_what_it_sets(controller: Controller, clock: Clock) -> None:
    controller.change(Change(k=2, lease_s=10))
    controller.change(Change(k=3))
    clock.now += 20
    assert controller.state().k == 3


def test_a_trial_is_not_made_permanent_by_a_change_of_something_else(
    controller: Controller, clock: Clock
) -> None:
    controller.change(Change(mode="target-only", lease_s=8))
    applied = controller.change(Change(k=3))
    assert "comes back in 8 s" in applied.notices[0]
    clock.now += 9
    state = controller.state()
    assert (state.mode, state.k, state.lease) == ("speculate", 3, None)


def test_what_makes_no_sense_once_a_lease_ends_is_refused_at_once(
    controller: Controller, clock: Clock
) -> None:
    controller.change(Change(parameters={"threshold.max_draft_length": 20}, lease_s=30))
    lower = Change(parameters={"threshold.min_draft_length": 18}, who="bo")
    with pytest.raises(Refusal, match="when the lease ends, threshold: min_draft_length=18") as no:
        controller.change(lower)
    assert no.value.status == 400
    assert controller.change(replace(lower, lease_s=30)).applied == lower.parameters
    clock.now += 31
    controller.tick()
    found = {each.name: each.value for each in controller.tuning().parameters}
    assert controller.state().lease is None
    assert (found["threshold.max_draft_length"], found["threshold.min_draft_length"]) == (16, 1)


def test_what_cannot_be_taken_back_at_once_is_taken_back_a_little_later(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    works = engine.skip_drafter
    cold = Change(mode="target-only", fallback="cold", lease_s=60)
    for change in (cold, replace(cold, judge=True, trial_s=4.0)):
        controller.change(change)
        if change.judge:
            run(controller, engine, 230, by_k={5: 4, 0: 1})
        assert controller.state().mode == "target-only"
        engine.skip_drafter = fails  # type: ignore[method-assign]  # one seam of a fake
        with pytest.raises(RuntimeError):
            controller.change(Change(cancel=True))
        engine.skip_drafter = works  # type: ignore[method-assign]  # the same
        assert controller.state().mode == "target-only"
        clock.now += 1
        state = controller.state()
        assert (state.mode, state.fallback, state.lease) == ("speculate", "warm", None)


def test_a_lease_that_cannot_be_taken_back_is_tried_again_and_given_up(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    tries, works = [], engine.skip_drafter

    def counted(on: bool) -> None:
        tries.append(on)
        fails(on)

    cold = Change(mode="target-only", fallback="cold", lease_s=5)
    for broken, left in ((1, "speculate"), (9, "target-only")):
        controller.change(cold)
        engine.skip_drafter = counted  # type: ignore[method-assign]  # one seam of a fake
        tries.clear()
        clock.now += 5
        for _ in range(9):
            with contextlib.suppress(RuntimeError):
                controller.tick()
            if len(tries) == broken:
                engine.skip_drafter = works  # type: ignore[method-assign]  # the same
            clock.now += 0.5
        assert controller.state().lease is None
        assert (controller.state().mode, len(tries)) == (left, min(broken, 3))


def test_what_could_not_be_done_is_not_claimed(controller: Controller, engine: Engine) -> None:
    engine.skip_drafter = fails  # type: ignore[method-assign]  # one seam of a fake
    with pytest.raises(RuntimeError):
        controller.change(Change(mode="target-only", fallback="cold"))
    state = controller.state()
    assert (state.mode, state.version, state.last_change) == ("speculate", 0, None)


def test_a_lease_that_ran_out_cannot_be_renewed(controller: Controller, clock: Clock) -> None:
    controller.change(Change(k=2, lease_s=1))
    clock.now += 2
    with pytest.raises(Refusal) as refusal:
        controller.change(Change(renew=True, lease_s=10))
    assert refusal.value.status == 409


def test_the_version_a_client_expects_must_hold(controller: Controller) -> None:
    controller.change(Change(k=3, who="ana", expect_version=0))
    with pytest.raises(Refusal, match="version 1, changed by ana") as refusal:
        controller.change(Change(k=4, expect_version=0))
    assert refusal.value.status == 409
    assert controller.state().k == 3


def test_setting_what_is_set_is_no_change(controller: Controller) -> None:
    controller.change(Change(k=5))
    assert controller.state().version == 0


MARGIN = {"goodput.margin": 0.2}


@pytest.mark.parametrize(
    ("build", "change", "reason"),
    [
        (replace(BUILD, method=None, k_max=0), Change(k=1), "without speculative decoding"),
        (replace(BUILD, method="suffix"), Change(k=1), "accepts only k = 5"),
        (replace(BUILD, method="medusa"), Change(mode="target-only"), "accepts only k = 5"),
        (replace(BUILD, method="custom_class"), Change(k=1), "not told k"),
        (replace(BUILD, data_parallel=2, moe=True), Change(k=1), "must agree on k"),
        (replace(BUILD, missing=("dynamic_sd_lookup",)), Change(k=1), "has no dynamic_sd_lookup"),
        (replace(BUILD, draft_architecture="step3p5"), Change(mode="target-only"), "cannot skip"),
        (replace(BUILD, can_skip_drafter=False), Change(fallback="cold"), "cannot be left out"),
        (replace(BUILD, method="suffix"), Change(policy="goodput"), "accepts only k = 5"),
        (replace(BUILD, method="suffix"), Change(parameters=MARGIN), "accepts only k = 5"),
        (BUILD, Change(k=6), "above k_max=5"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_with_the_reason(
    build: Build, change: Change, reason: str, clock: Clock
) -> None:
    engine = Engine(build)
    controller = control(engine, clock)
    engine.told.clear()
    with pytest.raises(Refusal, match=reason) as refusal:
        controller.change(change)
    assert refusal.value.status == 501
    assert refusal.value.remedy
    assert engine.told == []


def test_an_engine_that_cannot_change_k_is_never_told(clock: Clock) -> None:
    engine = Engine(replace(BUILD, method="suffix"))
    control(engine, clock)
    assert engine.told == []


def test_the_fingerprint_moves_with_k_and_comes_back(controller: Controller) -> None:
    first = controller.state().fingerprint
    controller.change(Change(k=3))
    assert controller.state().fingerprint != first
    controller.change(Change(k=5))
    assert controller.state().fingerprint == first


def test_how_target_only_was_kept_does_not_outlive_it(controller: Controller) -> None:
    first = controller.state().fingerprint
    controller.change(Change(mode="target-only", fallback="cold"))
    controller.change(Change(mode="speculate"))
    assert controller.state().fingerprint == first


def test_the_state_survives_the_wire(controller: Controller) -> None:
    controller.change(Change(k=2, lease_s=5, who="ana"))
    state = controller.state()
    assert type(state).from_json({**state.as_json(), "from_a_newer_plugin": 1}) == state


def poor(step: int) -> dict[str, Any]:
    """A step of one request whose drafts were all rejected."""
    return {
        "step": step, "t": step * 0.02, "requests": 1, "tokens": 5, "k": 4, "drafts": 1,
        "drafted": 4, "accepted": 0, "accepted_per_position": (0,) * 5, "seconds": 0.02,
        "committed": 1, "prefill": 0,
    }  # fmt: skip


def test_a_policy_moves_k_by_itself_and_says_why(controller: Controller, engine: Engine) -> None:
    controller.change(Change(policy="threshold"))
    assert (engine.k, controller.state().policy) == (4, "threshold")
    for step in range(3):
        controller.seen(poor(step))
    state = controller.state()
    assert (engine.k, state.k) == (3, 3)
    assert state.policy_reason is not None
    assert "k 4 → 3" in state.policy_reason


def test_a_policy_that_moves_k_is_one_path(controller: Controller) -> None:
    controller.change(Change(policy="threshold"))
    before = controller.state().fingerprint
    for step in range(3):
        controller.seen(poor(step))
    assert controller.state().fingerprint == before


def test_an_operators_k_ends_the_policy(controller: Controller, engine: Engine) -> None:
    controller.change(Change(policy="threshold"))
    applied = controller.change(Change(k=2))
    assert "policy threshold → fixed" in applied.notices[0]
    assert (engine.k, controller.state().policy) == (2, "fixed")
    engine.told.clear()
    for step in range(9):
        controller.seen(poor(step))
    assert engine.told == []


def test_target_only_holds_a_policy_still(controller: Controller, engine: Engine) -> None:
    controller.change(Change(policy="goodput"))
    controller.change(Change(mode="target-only"))
    engine.told.clear()
    for step in range(9):
        controller.seen(poor(step))
    assert engine.told == []
    controller.change(Change(mode="speculate"))
    assert engine.told[0][0] == "table"
    assert controller.state().policy == "goodput"


def test_a_policy_on_lease_gives_k_back(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    controller.change(Change(policy="threshold", lease_s=10))
    clock.now += 11
    controller.tick()
    assert (engine.k, controller.state().policy) == (5, "fixed")


def test_parameters_that_make_no_sense_are_refused_and_change_nothing(
    engine: Engine, clock: Clock
) -> None:
    odd = configured(engine, clock, {"min_draft_length": 9, "max_draft_length": 2})
    engine.told.clear()
    with pytest.raises(Refusal, match="more than"):
        odd.change(Change(policy="threshold"))
    assert (engine.told, odd.state().policy) == ([], "fixed")


def good(step: int, k: int, committed: int = 4) -> dict[str, Any]:
    """A step of one request that committed so many tokens in 20 ms."""
    return {
        "step": step, "t": 100 + step * 0.02, "requests": 1, "tokens": 1 + k, "k": k,
        "drafts": 1, "drafted": max(k, 1), "accepted": committed - 1, "seconds": 0.02,
        "accepted_per_position": (1,) * (committed - 1) + (0,) * (6 - committed),
        "committed": committed, "prefill": 0,
    }  # fmt: skip


def run(controller: Controller, engine: Engine, steps: int, *, by_k: dict[int, int]) -> None:
    """Steps that commit by the k in force; tokens differ a little, as they do."""
    for _ in range(steps):
        number = COUNT[0] = COUNT[0] + 1
        controller.tick()
        committed = by_k[engine.k] + (number % 7 == 0)
        controller.seen(good(number, engine.k, committed))


COUNT = [0]


def work(controller: Controller, engine: Engine, clock: Clock) -> None:
    """Eight seconds of steps, with the clock of the controller at the last one."""
    for number in range(400):
        clock.now = 100 + number * 0.02
        controller.seen(good(number, engine.k) | {"t": clock.now})


def test_an_exact_engine_of_the_config_starts_its_policy(engine: Engine, clock: Clock) -> None:
    controller = configured(
        engine, clock, {"adaptive_draft": True, "policy": "threshold"}, ("tools",)
    )
    state, tuning = controller.state(), controller.tuning()
    assert state.policy == "threshold"
    assert state.last_change is not None
    assert state.last_change.who == "config"
    assert tuning.exact.models == ("tools",)
    assert tuning.breaker.automatic


def test_the_breaker_by_hand_holds_beside_a_fixed_k(controller: Controller, engine: Engine) -> None:
    first = controller.state().fingerprint
    applied = controller.change(Change(breaker="open", reason="a breach", who="ci"))
    assert (applied.before, applied.applied) == ({"breaker": "closed"}, {"breaker": "open"})
    run(controller, engine, 500, by_k={0: 1, 5: 1})
    state, breaker = controller.state(), controller.tuning().breaker
    assert (engine.k, state.breaker, state.k_set, state.policy) == (0, "open", 5, "fixed")
    assert (breaker.held, breaker.reason, breaker.by) == (True, "a breach", "ci")
    assert state.fingerprint != first
    assert "breaker is open" in controller.change(Change(k=3)).notices[0]
    assert engine.k == 0
    controller.change(Change(breaker="closed"))
    assert engine.k == 3
    controller.change(Change(k=5))
    assert controller.state().fingerprint == first


def test_a_breaker_that_probes_closes_by_itself_and_the_name_follows(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    first = controller.state().fingerprint
    run(controller, engine, 200, by_k={5: 4})
    clock.now = 100 + COUNT[0] * 0.02  # where the steps are
    controller.change(Change(breaker="open", probe=True))
    names = set()
    for _ in range(900):
        run(controller, engine, 1, by_k={0: 1, 5: 4})
        names.add(controller._identity.as_json()["fingerprint"])
    assert controller.state().breaker == "closed"
    assert engine.k == 5
    assert len(names) == 3
    assert controller.state().fingerprint == first


def test_with_a_fixed_k_the_breaker_opens_by_itself_only_where_it_is_asked_to(
    engine: Engine, clock: Clock
) -> None:
    for automatic, state in ((None, "closed"), ("always", "open")):
        found = {} if automatic is None else {"breaker": automatic}
        controller = configured(engine, clock, found)
        seen = set()
        for number in range(900):
            controller.tick()
            committed = 1 + (number % 50 == 0)
            seconds = {"seconds": 0.03 if engine.k else 0.02}
            record = good(number, engine.k, committed) | seconds | {"t": number * 0.03}
            controller.seen(record)
            seen.add(controller.state().breaker)
        assert ("open" in seen) == (state == "open")


@pytest.mark.parametrize(("by_k", "end"), [({5: 2, 3: 4}, "kept"), ({5: 4, 3: 2}, "reverted")])
def test_a_trial_keeps_what_is_better_and_takes_back_what_is_worse(
    controller: Controller, engine: Engine, by_k: dict[int, int], end: str
) -> None:
    controller.change(Change(k=3, judge=True, trial_s=4.0, lease_s=3600, who="ana"))
    assert (engine.k, controller.state().trial) == (5, "baseline")
    run(controller, engine, 230, by_k=by_k)
    assert (engine.k, controller.state().trial) == (3, "changed")
    run(controller, engine, 230, by_k=by_k)
    trial, state = controller.tuning().trial, controller.state()
    assert trial is not None
    assert (trial.state, state.trial, state.lease) == (end, None, None)
    assert trial.comparison is not None
    assert trial.comparison.before_tokens_per_second == pytest.approx(50 * by_k[5], rel=0.1)
    assert engine.k == (3 if end == "kept" else 5)
    assert (trial.before, trial.after, trial.who) == ({"k": 5}, {"k": 3}, "ana")


def test_what_was_measured_already_lets_a_trial_begin_at_once(
    controller: Controller, engine: Engine
) -> None:
    run(controller, engine, 300, by_k={5: 4})
    applied = controller.change(Change(mode="target-only", judge=True, trial_s=4.0, lease_s=60))
    assert (applied.before, applied.applied) == ({"mode": "speculate"}, {"mode": "target-only"})
    assert engine.k == 0
    run(controller, engine, 230, by_k={0: 1, 5: 4})
    assert (engine.k, controller.state().mode) == (5, "speculate")


def test_a_trial_that_nobody_renews_is_taken_back_within_its_lease(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    controller.change(Change(policy="threshold", parameters={"threshold.max_draft_length": 3},
                             judge=True, trial_s=4.0, lease_s=10))  # fmt: skip
    run(controller, engine, 230, by_k={5: 4, 3: 4, 0: 1})
    assert controller.state().policy == "threshold"
    clock.now += 8
    controller.change(Change(renew=True, lease_s=10))
    clock.now += 8
    assert controller.state().policy == "threshold"
    clock.now += 3
    state, tuning = controller.state(), controller.tuning()
    assert (state.policy, engine.k, state.k) == ("fixed", 5, 5)
    assert {each.name: each.value for each in tuning.parameters}["threshold.max_draft_length"] == 16
    assert tuning.trial is not None
    assert tuning.trial.reason == "the lease was not renewed"
    assert tuning.changes[-1].who == "trial"


def test_an_operators_change_ends_a_trial_and_stands(
    controller: Controller, engine: Engine
) -> None:
    controller.change(Change(k=3, judge=True, trial_s=4.0, lease_s=60))
    run(controller, engine, 230, by_k={5: 4, 3: 4})
    applied = controller.change(Change(fallback="cold", who="bo"))
    assert "ended: bo changed the engine" in applied.notices[0]
    assert (engine.k, controller.state().fallback) == (5, "cold")


def test_a_change_that_is_refused_leaves_a_trial_under_way(
    controller: Controller, engine: Engine
) -> None:
    wider = {"threshold.max_draft_length": 20}
    controller.change(Change(parameters=wider, judge=True, trial_s=4.0, lease_s=60))
    run(controller, engine, 230, by_k={5: 4})
    assert controller.state().trial == "changed"
    before = controller.state().version
    with pytest.raises(Refusal, match="min_draft_length=18") as refusal:
        controller.change(Change(parameters={"threshold.min_draft_length": 18}, who="bo"))
    assert refusal.value.status == 400
    assert (controller.state().trial, controller.state().version) == ("changed", before)


def test_there_is_one_trial_at_a_time_and_it_can_be_cancelled(controller: Controller) -> None:
    controller.change(Change(k=3, judge=True, lease_s=60, who="ana"))
    with pytest.raises(Refusal, match="ana's trial") as refusal:
        controller.change(Change(k=2, judge=True, lease_s=60))
    assert refusal.value.status == 409
    controller.change(Change(cancel=True, who="ana"))
    trial = controller.tuning().trial
    assert trial is not None
    assert (trial.state, trial.reason) == ("abandoned", "cancelled by ana")
    with pytest.raises(Refusal):
        controller.change(Change(cancel=True))


def test_parameters_are_taken_whole_or_not_at_all(controller: Controller) -> None:
    before = controller.tuning().parameters
    for wrong in (
        {"threshold.draft_acceptance_threshold": 0.5, "threshold.min_draft_length": 17},
        {"breaker.acceptance_floor": 1.5},
        {"goodput.margins": 0.1},
        {"goodput.margin": "much"},
    ):
        with pytest.raises(Refusal) as refusal:
            controller.change(Change(k=2, parameters=wrong))
        assert refusal.value.status == 400
    assert controller.tuning().parameters == before
    assert controller.state().version == 0
    applied = controller.change(Change(parameters={"breaker.acceptance_floor": "none"}))
    assert applied.before == {"breaker.acceptance_floor": 0.2}
    assert applied.applied == {"breaker.acceptance_floor": None}


def test_a_k_that_ends_a_policy_can_be_undone(controller: Controller) -> None:
    controller.change(Change(policy="goodput"))
    applied = controller.change(Change(k=2))
    assert applied.before == {"k": 5, "policy": "goodput"}
    controller.change(Change(k=5, policy="goodput"))
    assert (controller.state().k_set, controller.state().policy) == (5, "goodput")


def test_a_configured_schedule_comes_back_when_a_lease_ends(clock: Clock) -> None:
    engine = Engine(replace(BUILD, own_schedule=True))
    controller = control(engine, clock)
    name = controller.state().fingerprint
    controller.change(Change(k=2, lease_s=5))
    clock.now += 6
    controller.tick()
    assert engine.told[-1] == ("schedule", None)
    assert controller.state().fingerprint == name


def test_the_tuning_survives_the_wire(controller: Controller, engine: Engine) -> None:
    run(controller, engine, 300, by_k={5: 4})
    controller.change(Change(k=3, judge=True, trial_s=4.0, lease_s=3600))
    run(controller, engine, 300, by_k={5: 4, 3: 2})
    tuning = controller.tuning()
    wire = json.loads(json.dumps({**tuning.as_json(), "from_a_newer_plugin": 1}))
    assert type(tuning).from_json(wire) == tuning
    assert {point.k for point in tuning.curve} == {3, 5}
    assert tuning.k == ((1, 8, 5),)


def test_an_engine_that_cannot_change_k_still_answers(clock: Clock) -> None:
    engine = Engine(replace(BUILD, method="suffix"))
    controller = control(engine, clock)
    controller.seen(good(1, 5))
    tuning = controller.tuning()
    assert (tuning.breaker.state, tuning.curve, tuning.changes) == ("closed", (), ())
    for change in (Change(breaker="open"), Change(k=1, judge=True, lease_s=5)):
        with pytest.raises(Refusal) as refusal:
            controller.change(change)
        assert refusal.value.status == 501


def test_a_parameter_of_a_policy_in_force_keeps_its_k(
    controller: Controller, engine: Engine
) -> None:
    controller.change(Change(policy="threshold"))
    for step in range(3):
        controller.seen(poor(step))
    assert engine.k == 3
    controller.change(Change(parameters={"threshold.draft_acceptance_threshold": 0.5}))
    assert engine.k == 3
    controller.change(Change(parameters={"threshold.max_draft_length": 2}))
    assert engine.k == 2


def test_the_moves_of_k_are_told_in_words(controller: Controller, engine: Engine) -> None:
    controller.change(Change(k=3, who="ana", reason="trying"))
    controller.change(Change(policy="threshold"))
    for step in range(3):
        controller.seen(poor(step))
    moves = controller.tuning().changes
    assert [(move.before, move.after, move.who) for move in moves] == [
        (5, 3, "ana"),
        (3, 4, "unknown"),
        (4, 3, "policy"),
    ]
    assert moves[0].reason == "trying"
    assert "k 4 → 3: 3 rounds in a row below the threshold" in moves[2].reason


def test_a_breaker_that_opens_while_target_only_is_measured_is_told_and_can_be_reset(
    controller: Controller, engine: Engine
) -> None:
    controller.change(Change(policy="threshold"))
    pilot, name = controller._steering.pilot, controller.state().fingerprint
    assert pilot is not None
    for _ in range(900):
        run(controller, engine, 1, by_k=dict.fromkeys(range(6), 2))
        if engine.k == 0:
            break
    assert (engine.k, pilot.breaker.state) == (0, "closed")

    def opens(*args: Any, **kwargs: Any) -> None:
        pilot.breaker.trip("loss", "it lost", hold=False)

    pilot.breaker.step = opens  # type: ignore[method-assign]  # whatever its windows say
    run(controller, engine, 1, by_k={0: 1})
    assert controller.tuning().changes[-1].reason == "breaker opened: it lost"
    assert controller._identity.as_json()["fingerprint"] != name
    controller.change(Change(k=3, policy="fixed"))
    assert (engine.k, controller.state().breaker) == (3, "closed")


def test_a_policy_that_follows_another_resets_what_opened_unseen(
    controller: Controller, engine: Engine
) -> None:
    controller.change(Change(policy="threshold"))
    pilot = controller._steering.pilot
    assert pilot is not None
    pilot.breaker.trip("loss", "it lost", hold=False)
    controller.change(Change(k=3, policy="fixed"))
    assert (engine.k, controller.state().breaker) == (3, "closed")


@pytest.mark.parametrize("end", [Change(mode="target-only"), None])
def test_an_alarm_of_repetition_ends_where_no_step_drafts_or_is_seen(
    controller: Controller, engine: Engine, end: Change | None
) -> None:
    for number in range(900):
        controller.seen(good(number, 5, 6))
    assert controller.state().alarm is not None
    if end is None:
        controller.blinded()
    else:
        controller.change(end)
    assert controller.state().alarm is None


STEP3P5 = replace(BUILD, draft_architecture="step3p5")


def test_a_draft_that_cannot_skip_a_round_is_never_given_k_zero(clock: Clock) -> None:
    engine = Engine(STEP3P5)
    controller = control(engine, clock)
    with pytest.raises(Refusal, match="cannot skip"):
        controller.change(Change(k=0))
    controller.change(Change(policy="goodput"))
    seen = set()
    for number in range(2000):
        # Target-only would pay here: a draft costs three times a step and is never accepted.
        controller.seen(good(number, engine.k, 1) | {"seconds": 0.01 + 0.02 * engine.k})
        seen.add(engine.k)
    assert engine.k == 1
    assert 0 not in seen


def test_a_config_that_makes_no_sense_leaves_the_engine_as_it_is(
    engine: Engine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    nonsense = {"policy": "faster", "cooldown": 1, "draft_acceptance_threshold": 0.99}
    controller = configured(engine, clock, {"adaptive_draft": True, **nonsense})
    assert controller.state().policy == "fixed"
    assert "policy is one of fixed" in caplog.text
    assert "its own breaker parameters: acceptance_floor=0.99" in caplog.text


def test_a_change_that_fails_half_way_is_taken_back_whole(
    controller: Controller, engine: Engine
) -> None:
    engine.skip_drafter = fails  # type: ignore[method-assign]  # one seam of a fake
    wanted = Change(
        mode="target-only", fallback="cold", parameters={"goodput.margin": 0.1}, policy="goodput"
    )
    with pytest.raises(RuntimeError):
        controller.change(wanted)
    assert engine.k == 5
    tuning = controller.tuning()
    assert tuning.policy == "fixed"
    assert {each.name: each.value for each in tuning.parameters}["goodput.margin"] == 0.015


def test_when_steps_are_seen_no_more_k_is_the_operators_again(
    controller: Controller, engine: Engine
) -> None:
    controller.change(Change(policy="threshold"))
    for step in range(3):
        controller.seen(poor(step))
    controller.change(Change(mode="target-only", judge=True, lease_s=60))
    assert engine.k == 3
    controller.blinded()
    state, trial = controller.state(), controller.tuning().trial
    assert (engine.k, state.policy, state.trial) == (5, "fixed", None)
    assert trial is not None
    assert trial.state == "abandoned"
    with pytest.raises(Refusal, match="failed at watching"):
        controller.change(Change(policy="goodput"))
    controller.change(Change(k=2))
    assert engine.k == 2


def test_a_lease_brings_no_policy_back_when_steps_are_seen_no_more(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    controller.change(Change(policy="goodput"))
    controller.change(Change(k=3, lease_s=30))
    controller.blinded()
    assert engine.k == 3
    clock.now += 31
    assert (controller.state().policy, engine.k) == ("fixed", 5)


def test_a_breaker_held_open_stays_so_when_steps_are_seen_no_more(
    controller: Controller, engine: Engine
) -> None:
    controller.change(Change(breaker="open", who="ci"))
    controller.blinded()
    assert (engine.k, controller.state().breaker) == (0, "open")


def test_time_passes_on_an_idle_engine(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    work(controller, engine, clock)
    controller.change(Change(breaker="open", probe=True))
    waits = controller.tuning().breaker.next_probe_s
    clock.now += 1.5
    tuning = controller.tuning()
    assert waits == 2.0
    assert tuning.breaker.next_probe_s == pytest.approx(0.5)
    assert tuning.breaker.since_s == pytest.approx(1.5)
    assert tuning.curve[0].age_s == pytest.approx(1.5, abs=0.4)
    clock.now += 1.0
    assert controller.tuning().breaker.next_probe_s == 0.0


def test_an_idle_night_that_nobody_watched_is_as_long_as_it_was(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    for k in (0, 3):
        controller.change(Change(k=k))
        work(controller, engine, clock)
        clock.now += 1
    found = controller.tuning()
    assert found.ledger is not None
    assert found.ledger.hour is not None
    assert found.curve
    clock.now += 9 * 3600
    found = controller.tuning()
    assert found.ledger is not None
    assert found.ledger.hour is None
    assert found.ledger.day is not None
    assert found.curve == ()
    clock.now += 20 * 3600
    found = controller.tuning()
    assert found.ledger is not None
    assert found.ledger.day is None


def test_work_of_an_hour_ago_is_no_baseline(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    work(controller, engine, clock)
    clock.now += 3600
    controller.change(Change(k=3, judge=True, trial_s=4.0, lease_s=60))
    assert (engine.k, controller.state().trial) == (5, "baseline")


def test_a_breach_of_divergence_is_told_as_one_and_outlives_a_policy(
    controller: Controller, engine: Engine
) -> None:
    found = Change(breaker="open", cause="divergence", reason="2 of 9 differ", who="ci")
    controller.change(found)
    tuning = controller.tuning()
    assert (tuning.breaker.cause, tuning.breaker.held) == ("divergence", True)
    assert tuning.changes[-1].reason == "breaker open for divergence: 2 of 9 differ"
    controller.change(Change(policy="goodput"))
    controller.change(Change(policy="fixed"))
    assert (engine.k, controller.state().breaker) == (0, "open")


def test_a_trial_of_k_behind_an_open_breaker_says_that_it_has_no_effect(
    controller: Controller, engine: Engine
) -> None:
    run(controller, engine, 300, by_k={5: 4})
    controller.change(Change(breaker="open"))
    applied = controller.change(Change(k=3, judge=True, trial_s=4.0, lease_s=60))
    assert "the breaker is open: k takes effect" in applied.notices[-1]


def test_the_outlook_tells_measured_from_guessed(controller: Controller, engine: Engine) -> None:
    assert controller.tuning().outlook == ()
    seen = Tally(7, 9, (9, 9, 9, 0, 0), (9, 9, 9, 0, 0))
    engine.tally = lambda: seen  # type: ignore[method-assign]  # one seam of a fake
    engine.requests = lambda: (1, 0)  # type: ignore[method-assign]  # the same
    controller.change(Change(k=3))
    run(controller, engine, 300, by_k={3: 3})
    outlook = controller.tuning().outlook
    assert [each.k for each in outlook if each.timed] == [3]
    assert [each.k for each in outlook if each.extrapolated] == [4, 5]
    assert outlook[3].tokens_per_step > outlook[1].tokens_per_step > 1
    assert all(each.tokens_per_second for each in outlook)


def test_a_trial_whose_change_cannot_be_made_is_over(
    controller: Controller, engine: Engine
) -> None:
    run(controller, engine, 300, by_k={5: 4})
    engine.skip_drafter = fails  # type: ignore[method-assign]  # one seam of a fake
    wanted = Change(mode="target-only", fallback="cold", judge=True, trial_s=4.0, lease_s=60)
    with pytest.raises(RuntimeError):
        controller.change(wanted)
    trial = controller.tuning().trial
    assert (engine.k, controller.state().trial) == (5, None)
    assert trial is not None
    assert trial.reason == "the change could not be made"


def test_a_replaced_trial_renews_and_cancels_nothing_of_its_successors(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    tried = controller.change(Change(k=3, judge=True, lease_s=10, trial_s=5, who="ana"))
    assert tried.trial == 1
    controller.change(Change(k=2, lease_s=3600, who="bob"))
    for stale in (Change(renew=True, lease_s=10, trial=1), Change(cancel=True, trial=1)):
        with pytest.raises(Refusal, match="trial 1 has ended") as caught:
            controller.change(stale)
        assert caught.value.status == 409
    clock.now += 11
    state = controller.state()
    assert (engine.k, state.lease.seconds_left if state.lease else None) == (2, 3589)
    controller.change(Change(cancel=True))
    assert controller.change(Change(k=4, judge=True, lease_s=10, trial_s=5)).trial == 2
    with pytest.raises(Refusal, match="trial 1 has ended"):
        controller.change(Change(cancel=True, trial=1))


def test_a_trial_is_renewed_by_its_number_whatever_moved_meanwhile(
    controller: Controller, clock: Clock
) -> None:
    controller.change(Change(policy="threshold", judge=True, lease_s=10, trial_s=5, who="ana"))
    clock.now += 9
    controller.change(Change(renew=True, lease_s=10, trial=1))
    clock.now += 9
    assert controller.state().trial == "baseline"
    controller.change(Change(cancel=True, trial=1))
    assert controller.state().trial is None


def test_undoing_a_reset_brings_back_a_breaker_that_recovers_by_itself(
    controller: Controller,
) -> None:
    controller.change(Change(breaker="open", probe=True))
    reset = controller.change(Change(breaker="closed"))
    assert (reset.before, reset.applied) == ({"breaker": "open"}, {"breaker": "closed"})
    assert reset.undo == {"breaker": "probe"}
    back = controller.change(Change(breaker="open", probe=True))
    assert (back.before, back.applied) == ({"breaker": "closed"}, {"breaker": "open"})
    assert back.undo == {"breaker": "closed"}
    assert not controller.tuning().breaker.held
    controller.change(Change(breaker="open"))
    assert controller.change(Change(breaker="open", probe=True)).undo == {"breaker": "open"}
    controller.change(Change(breaker="open", who="ci"))
    assert controller.change(Change(breaker="closed")).undo == {"breaker": "open"}


def test_what_takes_an_opened_breaker_back_is_a_reset_even_where_it_was_open(
    controller: Controller,
) -> None:
    controller.change(Change(breaker="open", probe=True))
    tripped = controller.change(Change(breaker="open", cause="divergence", who="ci"))
    assert (tripped.before, tripped.undo) == ({"breaker": "open"}, {"breaker": "closed"})
    assert controller.change(Change(breaker="open")).undo == {"breaker": "closed"}


def origins(controller: Controller) -> tuple[str | None, str | None]:
    """Where the last change, and the last move of k, came from."""
    last, moves = controller.state().last_change, controller.tuning().changes
    return last.origin if last else None, moves[-1].origin if moves else None


def test_every_change_tells_where_it_came_from(
    controller: Controller, engine: Engine, clock: Clock
) -> None:
    controller.change(change_from({"k": 4, "who": "an older console"}))
    assert origins(controller) == ("operator", "operator")
    controller.change(Change(k=5, origin="undo"))
    assert origins(controller) == ("undo", "undo")
    controller.change(Change(k=2, lease_s=5, origin="sweep"))
    assert origins(controller) == ("sweep", "sweep")
    clock.now += 6
    assert origins(controller) == ("lease", "lease")
    run(controller, engine, 300, by_k={5: 4})
    controller.change(Change(k=3, judge=True, trial_s=4.0, lease_s=60))
    assert (engine.k, origins(controller)) == (3, ("trial", "trial"))
    controller.change(Change(cancel=True))
    assert (engine.k, origins(controller)) == (5, ("trial", "trial"))
    controller.change(Change(policy="threshold"))
    for step in range(3):
        controller.seen(poor(step))
    assert origins(controller) == ("operator", "policy")
    controller.change(Change(breaker="open", who="ana"))
    assert origins(controller) == ("operator", "operator")


def test_an_origin_of_a_newer_client_is_read_as_it_is(controller: Controller) -> None:
    controller.change(change_from({"k": 4, "origin": "weather"}))
    assert controller.state().as_json()["last_change"]["origin"] == "weather"


def test_what_the_config_begins_says_so(engine: Engine, clock: Clock) -> None:
    controller = configured(engine, clock, {"adaptive_draft": True})
    assert origins(controller)[0] == "config"
