"""What is taken down of each step, on a stand-in for vLLM's scheduler."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin.recorder import Recorder, StepOrder
from specdeck.engine.plugin.request_pins import Pins
from specdeck.engine.policy.step import Step


class Scheduler:
    """Schedules what it is told and accounts for drafts as vLLM does."""

    def __init__(self) -> None:
        self.running = [1]
        self.accepted: list[tuple[int, int]] = []

    def schedule(self, requests: int, tokens: int, k: int, verifying: int) -> Any:
        return SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(range(requests), 1),
            total_num_scheduled_tokens=tokens,
            num_spec_tokens_to_schedule=k,
            scheduled_spec_decode_tokens={0: [0] * verifying},
        )

    def update_from_output(self, output: Any, result: Any) -> Any:
        for drafted, accepted in self.accepted:
            self.make_spec_decoding_stats(
                None, num_draft_tokens=drafted, num_accepted_tokens=accepted
            )
        tokens = [1] * (1 + sum(a for _, a in self.accepted))
        made = SimpleNamespace(request_id=0, new_token_ids=tokens)
        return {0: SimpleNamespace(outputs=[made])}

    def make_spec_decoding_stats(
        self, stats: Any, num_draft_tokens: int, num_accepted_tokens: int
    ) -> None:
        return None


@dataclass
class Listener:
    """Hears of steps, and fails where it is told to."""

    fails: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def before_step(self) -> None:
        self._hear("before_step")

    def after_step(self, step: Step) -> None:
        self._hear("after_step")

    def on_blind(self) -> None:
        self._hear("on_blind")

    def on_new_weights(self) -> None:
        self._hear("on_new_weights")

    def _hear(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fails:
            raise RuntimeError("ours")


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def step(scheduler: Scheduler, *drafts: tuple[int, int], tokens: int = 4, k: int = 3) -> None:
    scheduler.accepted = list(drafts)
    output = scheduler.schedule(1, tokens, k, verifying=sum(d for d, _ in drafts))
    scheduler.update_from_output(output, None)


def test_a_step_says_what_it_drafted_accepted_and_committed(scheduler: Scheduler) -> None:
    recorder = Recorder(scheduler, 3, Listener())
    step(scheduler, (3, 2))
    (record,) = recorder.ring
    assert (record.step, record.k, record.drafts, record.drafted) == (1, 3, 1, 3)
    assert (record.accepted, record.accepted_per_position) == (2, (1, 1, 0))
    assert (record.committed, record.prefill, record.seconds) == (3, 0, None)
    assert (recorder.drafts, recorder.drafted, recorder.accepted) == (1, [1, 1, 1], [1, 1, 0])


def test_a_step_after_a_busy_one_knows_how_long_it_took(scheduler: Scheduler) -> None:
    recorder = Recorder(scheduler, 3, Listener())
    step(scheduler)
    step(scheduler)
    assert recorder.ring[-1].seconds is not None
    scheduler.running = []
    step(scheduler)
    step(scheduler)
    assert recorder.ring[-1].seconds is None


def test_prompt_tokens_are_told_from_decoded_ones(scheduler: Scheduler) -> None:
    recorder = Recorder(scheduler, 3, Listener())
    step(scheduler, tokens=40)
    assert recorder.ring[-1].prefill == 39


class Aborting(Scheduler):
    """Hands nothing to one request of two: its client has gone in the midst of the step."""

    def schedule(self, requests: int, tokens: int, k: int, verifying: int) -> Any:
        return super().schedule(2, tokens, k, verifying)


def test_requests_that_are_handed_nothing_are_told() -> None:
    scheduler = Aborting()
    recorder = Recorder(scheduler, 3, Listener())
    step(scheduler, (3, 2))
    (record,) = recorder.ring
    assert (record.requests, record.absent, record.alone) == (2, 1, 1)
    assert Step.from_json(record.as_json()).absent == 1


class Ending(Scheduler):
    """Cuts what came out of a step, in place, before it is handed on."""

    def update_from_output(self, output: Any, result: Any) -> Any:
        found = super().update_from_output(output, result)
        for tokens in result.sampled_token_ids:
            del tokens[1:]
        others = [
            SimpleNamespace(request_id=name, new_token_ids=tokens)
            for name, tokens in zip(result.req_ids, result.sampled_token_ids, strict=True)
        ]
        found[0].outputs += others
        return found


def test_what_pinned_requests_had_is_none_of_what_others_choose_by() -> None:
    scheduler = Ending()
    pins = Pins(None, 3)
    pins._pinned = {"a": 1, "b": 0}
    recorder = Recorder(scheduler, 3, Listener(), pins=pins)
    scheduler.accepted = [(3, 2), (1, 1), (3, 0)]
    output = scheduler.schedule(4, 12, 3, verifying=3)
    output.scheduled_spec_decode_tokens["a"] = [0]
    result = SimpleNamespace(req_ids=["a", "b"], sampled_token_ids=[[1, 1], [1]])
    scheduler.update_from_output(output, result)
    (record,) = recorder.ring
    assert (record.drafts, record.drafted, record.accepted) == (2, 6, 2)
    assert record.accepted_per_position == (1, 1, 0)
    assert (record.pinned, record.pinned_tokens, record.committed) == (2, 2, 6)
    # What the engine did is counted all the same.
    assert (recorder.drafts, recorder.drafted, recorder.accepted) == (3, [3, 2, 2], [2, 1, 0])
    assert Step.from_json(record.as_json()) == record._replace(verified=0, settled=False)


@pytest.mark.parametrize("call", ["before_step", "after_step"])
def test_a_failure_of_ours_ends_our_part_and_not_the_engine(
    scheduler: Scheduler, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener({call})
    Recorder(scheduler, 3, listener)
    for _ in range(3):
        step(scheduler, (3, 1))
    assert listener.calls.count(call) == 1
    assert "the engine continues" in caplog.text


def test_what_runs_out_is_still_taken_back_when_watching_has_failed(scheduler: Scheduler) -> None:
    listener = Listener({"after_step"})
    Recorder(scheduler, 3, listener)
    for _ in range(3):
        step(scheduler, (3, 1))
    assert (listener.calls.count("before_step"), listener.calls.count("on_blind")) == (3, 1)


def test_taking_back_what_runs_out_is_tried_again_after_a_failure(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    now, ticks = [0.0], []

    class FailsAtFirst(Listener):
        def before_step(self) -> None:
            ticks.append(now[0])
            if len(ticks) < 3:
                raise RuntimeError("ours")

    Recorder(scheduler, 3, FailsAtFirst(), clock=lambda: now[0])
    for _ in range(40):
        step(scheduler)
        now[0] += 0.25
    assert ticks[:4] == [0.0, 1.0, 2.0, 2.25]
    assert len(ticks) == 34
    assert caplog.text.count("Traceback") == 1


def test_a_step_goes_onto_the_wire_without_what_follows_from_the_order_of_steps(
    scheduler: Scheduler,
) -> None:
    recorder = Recorder(scheduler, 3, Listener())
    step(scheduler, (3, 2))
    step(scheduler, (3, 2))
    last = recorder.ring[-1]
    assert (last.verified, last.settled) == (3, True)
    assert list(last.as_json()) == [
        "step", "t", "requests", "tokens", "k", "drafts", "drafted", "accepted", "seconds",
        "committed", "accepted_per_position", "prefill",
    ]  # fmt: skip


class Sums:
    """vLLM's sums over the drafts of a step."""

    def __init__(self) -> None:
        self.num_drafts = self.num_draft_tokens = 0
        self.num_draft_tokens_per_pos = [0] * 3
        self.num_accepted_tokens_per_pos = [0] * 3


class Summing(Scheduler):
    """Sums drafts up and hands the sums over once a step, as vLLM does."""

    def __init__(self) -> None:
        super().__init__()
        self.handed_over = True

    def update_from_output(self, output: Any, result: Any) -> Any:
        stats = None
        for drafted, accepted in self.accepted:
            stats = self.make_spec_decoding_stats(
                stats, num_draft_tokens=drafted, num_accepted_tokens=accepted
            )
        if self.handed_over:
            self.make_stats(stats)
        return {0: SimpleNamespace(outputs=[])}

    def make_stats(self, spec_decoding_stats: Any) -> None:
        """Where vLLM makes its own figures of them."""

    def make_spec_decoding_stats(
        self, stats: Any, num_draft_tokens: int, num_accepted_tokens: int
    ) -> Any:
        stats = stats or Sums()
        stats.num_drafts += 1
        stats.num_draft_tokens += num_draft_tokens
        for position in range(num_draft_tokens):
            stats.num_draft_tokens_per_pos[position] += 1
            stats.num_accepted_tokens_per_pos[position] += position < num_accepted_tokens
        return stats


@pytest.mark.parametrize("handed_over", [True, False])
def test_sums_of_vllm_are_taken_once_a_step_where_it_hands_them_over(handed_over: bool) -> None:
    scheduler = Summing()
    scheduler.handed_over = handed_over
    recorder = Recorder(scheduler, 3, Listener())
    for drafts in ([(3, 2), (2, 0)], [], [(3, 3)], [(1, 1), (3, 0), (3, 1)]):
        step(scheduler, *drafts)
    assert [record.drafts for record in recorder.ring] == [2, 0, 1, 3]
    assert [record.accepted_per_position for record in recorder.ring] == [
        (1, 1, 0), (0, 0, 0), (1, 1, 1), (2, 0, 0),
    ]  # fmt: skip
    assert (recorder.drafts, recorder.drafted, recorder.accepted) == (6, [6, 5, 4], [4, 2, 1])
    watched = not hasattr(scheduler.make_spec_decoding_stats, "__func__")
    assert watched is not handed_over


def test_a_step_verifies_what_the_one_before_it_drafted() -> None:
    order = StepOrder()
    found = [order.follow(step, k) for step, k in enumerate((3, 3, 5, 5))]
    assert [verified for verified, _ in found] == [0, 3, 3, 5]
    assert [settled for _, settled in found] == [False, True, False, True]


def test_an_asynchronous_engine_settles_a_step_later() -> None:
    order = StepOrder(settle=2)
    found = [order.follow(step, k) for step, k in enumerate((3, 3, 3, 5, 5, 5))]
    assert [settled for _, settled in found] == [False, False, True, False, False, True]


def test_another_engine_does_not_verify_the_drafts_of_the_first() -> None:
    order = StepOrder()
    order.follow(9, 3)
    assert order.follow(1, 3) == (0, False)


def test_steps_that_another_hand_steered_leave_no_k_behind() -> None:
    order = StepOrder()
    order.follow(9, 3)
    assert order.follow(11, 3) == (3, True)
    assert order.follow(500, 3) == (0, False)


def test_every_fourth_step_tells_whose_drafts_were_accepted(scheduler: Scheduler) -> None:
    recorder = Recorder(scheduler, 3, Listener())
    heard: list[tuple[set[Any], set[Any]]] = []
    recorder.on_drafts = lambda drafted, several: heard.append((set(drafted), set(several)))
    for accepted in (2, 2, 2, 2, 0, 0, 0, 0):
        scheduler.accepted = [(3, accepted)]
        output = scheduler.schedule(1, 4, 3, verifying=3)
        scheduler.update_from_output(output, None)
    assert heard == [({0}, {0}), ({0}, set())]
