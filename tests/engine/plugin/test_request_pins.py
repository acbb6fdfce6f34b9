"""Requests with a k of their own, and those under exact names."""

from __future__ import annotations

import sys
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from specdeck.engine.plugin import request_pins
from specdeck.engine.plugin.request_pins import Pins, guard, mark_exact, pinned_k


class Looked(dict[str, Any]):
    """Requests by id, counting how often one is looked at."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)


class Scheduler:
    """As much of vLLM's scheduler as pinning touches; `seats` requests run, the others wait."""

    def __init__(self, seats: int = 256) -> None:
        self.requests = Looked()
        self.running: list[Any] = []
        self.finished_req_ids: set[str] = set()
        self._waiting: deque[Any] = deque()
        self._seats = seats

    def add_request(self, request: Any) -> None:
        if self.requests.setdefault(request.request_id, request) is not request:
            return  # the next words of a session that is there
        self._waiting.append(request)

    def schedule(self) -> Any:
        new: list[Any] = []
        while self._waiting and len(self.running) < self._seats:
            self.running.append(self._waiting.popleft())
            new.append(SimpleNamespace(req_id=self.running[-1].request_id))
        finished, self.finished_req_ids = self.finished_req_ids, set()
        return SimpleNamespace(scheduled_new_reqs=new, finished_req_ids=finished)

    def finish(self, name: str) -> None:
        """Ends a request, as an abort or its last token does."""
        gone = self.requests.pop(name)
        gone.is_finished = lambda: True
        self.running = [one for one in self.running if one is not gone]
        self._waiting = deque(one for one in self._waiting if one is not gone)
        self.finished_req_ids.add(name)

    def update_draft_token_ids(self, drafts: list[int]) -> None:
        for request in self.running:
            request.spec_token_ids = list(drafts)


class AsyncScheduler(Scheduler):
    """Gives every request the same list of placeholders."""

    def __init__(self) -> None:
        super().__init__()
        self._spec_token_placeholders = [-1] * 5

    def _update_after_schedule(self, output: Any) -> None:
        for request in self.running:
            request.spec_token_ids = self._spec_token_placeholders


def request(name: str, *, tokens: int = 0, **extra_args: Any) -> Any:
    params = SimpleNamespace(extra_args=extra_args or None)
    return SimpleNamespace(
        request_id=name, sampling_params=params, spec_token_ids=[], num_output_tokens=tokens,
        is_finished=lambda: False,
    )  # fmt: skip


@pytest.mark.parametrize("k", [-1, 6, 1.0, "2", True, None, [0]])
def test_a_pin_that_cannot_be_is_refused(k: Any) -> None:
    with pytest.raises(ValueError, match="from 0 to 5"):
        pinned_k({"specdeck_k": k}, k_max=5)


def test_a_pinned_request_is_drafted_no_more_than_it_asks() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    for k in range(6):
        scheduler.add_request(request(str(k), specdeck_k=k))
    scheduler.add_request(request("free"))
    scheduler.schedule()
    scheduler.update_draft_token_ids([7] * 5)
    lengths = {name: len(one.spec_token_ids) for name, one in scheduler.requests.items()}
    assert lengths == {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "free": 5}
    assert len(pins) == 6


def part(pins: Pins, *, invalid: dict[str, int] | None = None, **steps: tuple[int, int]) -> Any:
    """Of a step that verified so many tokens of each request's draft, and accepted so many.

    A request that accepts fewer than none is one whose prompt is computed.
    """
    answered = {name: accepted for name, (_, accepted) in steps.items() if accepted >= 0}
    output = SimpleNamespace(
        scheduled_spec_decode_tokens={
            n: [0] * length for n, (length, _) in steps.items() if length
        },
        num_invalid_spec_tokens=invalid,
    )
    sampled = [[1] * (1 + accepted) for _, accepted in steps.values()]
    drafts = pins.note_drafts(
        output, SimpleNamespace(req_ids=list(steps), sampled_token_ids=sampled)
    )
    for one in sampled:
        del one[2:]  # as vLLM cuts an answer where its request ends
    outputs = [
        SimpleNamespace(request_id=name, new_token_ids=tokens)
        for name, tokens in zip(steps, sampled, strict=True)
        if name in answered
    ]
    return pins.find_part(drafts, {0: SimpleNamespace(outputs=outputs)})


def test_what_pinned_requests_had_of_a_step_is_told() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    assert part(pins, free=(5, 3)) is None
    for name, k in (("a", 0), ("b", 0), ("c", 2), ("d", 4)):
        scheduler.add_request(request(name, specdeck_k=k))
    assert part(pins, free=(5, 3)) is None
    assert part(pins, free=(5, 3), a=(0, 0), b=(0, 0)) == (2, 2, [])
    assert part(pins, free=(5, 3), c=(2, 1), d=(4, 4)) == (2, 4, [(2, 1), (4, 4)])
    assert part(pins, d=(4, 1), invalid={"d": 3}) == (1, 2, [(1, 1)])
    assert part(pins, free=(5, 3), a=(0, -1)) is None  # its prompt is computed


def test_a_request_that_rests_drafts_nothing_until_it_is_told_otherwise() -> None:
    scheduler = Scheduler()
    told: list[bool] = []
    pins = Pins(scheduler, 5, on_presence=lambda: told.append(pins.has_any))
    for name in ("rests", "free"):
        scheduler.add_request(request(name))
    scheduler.add_request(request("pinned", specdeck_k=2))
    scheduler.schedule()
    pins.rest({"rests"})
    scheduler.update_draft_token_ids([7] * 5)
    lengths = {name: len(one.spec_token_ids) for name, one in scheduler.requests.items()}
    assert lengths == {"rests": 0, "free": 5, "pinned": 2}
    assert (len(pins), pins.resting) == (1, 1)
    pins.rest(())
    scheduler.update_draft_token_ids([7] * 5)
    assert len(scheduler.requests["rests"].spec_token_ids) == 5
    assert told == [True]  # the pinned one is there all the time


def test_resting_alone_keeps_the_list_of_k_in_place() -> None:
    told: list[bool] = []
    pins = Pins(Scheduler(), 5, on_presence=lambda: told.append(pins.has_any))
    pins.rest({"rests"})
    pins.rest({"rests", "another"})
    pins.rest(())
    assert told == [True, False]


def test_the_asynchronous_schedulers_shared_list_is_left_alone() -> None:
    scheduler = AsyncScheduler()
    Pins(scheduler, 5)
    scheduler.add_request(request("pinned", specdeck_k=2))
    scheduler.add_request(request("free"))
    scheduler.schedule()
    scheduler._update_after_schedule(None)
    assert len(scheduler.requests["pinned"].spec_token_ids) == 2
    assert scheduler.requests["free"].spec_token_ids is scheduler._spec_token_placeholders
    assert len(scheduler._spec_token_placeholders) == 5


def test_a_finished_request_is_forgotten() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    scheduler.add_request(request("gone", specdeck_k=0))
    scheduler.finish("gone")
    scheduler.schedule()
    assert pins._pinned == {}
    scheduler.add_request(request("aborted", specdeck_k=0))
    scheduler.finish("aborted")
    assert len(pins) == 0


def test_a_pin_outlives_an_earlier_request_of_the_same_id() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    for _ in range(2):
        scheduler.add_request(request("twice", specdeck_k=0))
        scheduler.finish("twice")
    scheduler.add_request(request("twice", specdeck_k=1))
    scheduler.schedule()
    scheduler.update_draft_token_ids([7] * 5)
    assert (len(pins), scheduler.requests["twice"].spec_token_ids) == (1, [7])


def test_the_next_words_of_a_session_are_no_other_request() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    for tokens in (4, 0):
        scheduler.add_request(request("one", tokens=tokens, specdeck_k=0, specdeck_exact=1))
        scheduler.schedule()
    assert (pins.exact_requests, pins.exact_tokens) == (1, 4)


def test_a_step_costs_what_runs_and_an_arrival_costs_nothing_of_what_waits() -> None:
    scheduler = Scheduler(seats=8)
    pins = Pins(scheduler, 5)

    def arrive(count: int, first: int) -> int:
        before = scheduler.requests.looks
        for number in range(first, first + count):
            scheduler.add_request(request(str(number), specdeck_k=0, specdeck_exact=1))
        return scheduler.requests.looks - before

    def work() -> int:
        before = scheduler.requests.looks
        for _ in range(10):
            scheduler.schedule()
            scheduler.update_draft_token_ids([7] * 5)
        return scheduler.requests.looks - before

    few, seldom = arrive(10, 0), work()
    many, often = arrive(2000, 10), work()
    assert many <= 200 * few
    assert often <= seldom
    before = scheduler.requests.looks
    assert (len(pins), pins.exact_running, pins.exact_tokens) == (2010, 2010, 0)
    assert scheduler.requests.looks == before


def test_pins_that_fail_say_so_and_hold_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = AsyncScheduler()
    present: list[bool] = []
    pins = Pins(scheduler, 5, on_presence=lambda: present.append(pins.has_any))
    scheduler.add_request(request("one", tokens=3, specdeck_k=0, specdeck_exact=1))
    scheduler.schedule()
    assert (pins.failed, len(pins), pins.exact_running, pins.exact_tokens) == (False, 1, 1, 3)
    scheduler.running = [SimpleNamespace()]  # no request of vLLM's
    scheduler._update_after_schedule(None)
    assert "specdeck stops pinning requests" in caplog.text
    pins.rest({"one"})
    scheduler.add_request(request("other", specdeck_k=0))
    assert (pins.failed, len(pins), pins.exact_running, pins.resting) == (True, 0, 0, 0)
    assert (pins.exact_requests, pins.exact_tokens, present) == (1, 3, [True, False])


def test_nonsense_that_came_past_the_api_server_ends_nothing() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    scheduler.add_request(request("odd", specdeck_k="all"))
    scheduler.schedule()
    scheduler.update_draft_token_ids([7] * 5)
    assert (len(pins), len(scheduler.requests["odd"].spec_token_ids)) == (0, 5)


def test_a_scheduler_without_the_places_is_not_touched() -> None:
    assert not Pins(SimpleNamespace(requests={}), 5).available


def test_the_api_server_refuses_before_the_request_is_taken() -> None:
    taken: list[str] = []

    def process(request_id: str, prompt: str, params: Any) -> str:
        taken.append(request_id)
        return "taken"

    processor = SimpleNamespace(process_inputs=process)
    exact: list[int] = []
    guard(SimpleNamespace(input_processor=processor), 5, lambda: exact.append(1))
    good, bad = (SimpleNamespace(extra_args={"specdeck_k": k}) for k in (5, 6))
    assert processor.process_inputs("id", "prompt", good) == "taken"
    with pytest.raises(Exception, match="not 6"):
        processor.process_inputs("id", "prompt", bad)
    assert taken == ["id"]
    assert exact == []
    marked = SimpleNamespace(extra_args={"specdeck_k": 0, "specdeck_exact": 1})
    processor.process_inputs("id", "prompt", marked)
    assert exact == [1]


def test_where_there_are_no_exact_names_nobody_can_claim_one() -> None:
    processor = SimpleNamespace(process_inputs=lambda request_id, prompt, params: None)
    guard(SimpleNamespace(input_processor=processor), 5)
    params = SimpleNamespace(extra_args={"specdeck_k": 0, "specdeck_exact": 1})
    processor.process_inputs("id", "prompt", params)
    assert params.extra_args == {"specdeck_k": 0}


@pytest.mark.parametrize("k", ["x" * 10**6, [[0] * 1000] * 1000])
def test_a_refusal_does_not_repeat_all_that_was_asked(k: Any) -> None:
    with pytest.raises(ValueError, match="from 0 to 5") as refused:
        pinned_k({"specdeck_k": k}, k_max=5)
    reason = mark_exact(ask("tools-exact", specdeck_k=k), NAMES, None)
    assert reason is not None
    assert max(len(str(refused.value)), len(reason)) < 300


def test_finished_requests_are_let_go_of_without_a_single_draft() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    for number in range(50):
        scheduler.add_request(request(str(number), tokens=2, specdeck_k=0, specdeck_exact=1))
        scheduler.schedule()
        scheduler.finish(str(number))
    assert len(pins._pinned) == len(pins._exact) == len(pins._begun) == 1
    assert (pins.exact_requests, pins.exact_tokens) == (50, 100)
    assert (pins._pinned, pins._exact, pins._begun) == ({}, {}, {})


NAMES = frozenset({"tools-exact"})


def ask(model: str | None, **xargs: Any) -> Any:
    return SimpleNamespace(model=model, vllm_xargs=xargs or None)


def test_other_names_are_left_alone() -> None:
    request = ask("tools", specdeck_k=3)
    assert mark_exact(request, NAMES, "tools") is None
    assert request.vllm_xargs == {"specdeck_k": 3}


def test_a_request_without_a_name_means_the_first_served_one() -> None:
    request = ask(None)
    assert mark_exact(request, NAMES, "tools-exact") is None
    assert request.vllm_xargs == {"specdeck_k": 0, "specdeck_exact": 1}


def test_marking_twice_is_marking_once() -> None:
    request = ask("tools-exact", other=1)
    for _ in range(2):
        assert mark_exact(request, NAMES, None) is None
    assert request.vllm_xargs == {"other": 1, "specdeck_k": 0, "specdeck_exact": 1}


@pytest.mark.parametrize("k", [1, "0", False])
def test_another_k_of_its_own_is_refused_under_an_exact_name(k: Any) -> None:
    reason = mark_exact(ask("tools-exact", specdeck_k=k), NAMES, None)
    assert reason is not None
    assert "target-only" in reason


def test_a_client_cannot_pass_for_exact_traffic() -> None:
    request = ask("tools", specdeck_exact=1, specdeck_k=0)
    assert mark_exact(request, NAMES, None) is None
    assert request.vllm_xargs == {"specdeck_k": 0}


def test_exact_traffic_is_counted_apart() -> None:
    scheduler = Scheduler(seats=3)
    pins = Pins(scheduler, 5)
    for name in "abcd":
        scheduler.add_request(request(name, tokens=7, specdeck_k=0, specdeck_exact=1))
    scheduler.add_request(request("pinned", specdeck_k=0))
    scheduler.schedule()
    scheduler.finish("a")
    assert (pins.exact_requests, pins.exact_running, pins.exact_tokens) == (4, 3, 21)
    for name in ("b", "c", "d", "pinned"):
        scheduler.finish(name)
    assert (pins.exact_requests, pins.exact_running, pins.exact_tokens) == (4, 0, 28)
    assert len(pins) == 0


def serving_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What checks a model's name, where specdeck looks for it first."""

    class Serving:
        models = SimpleNamespace(base_model_paths=[SimpleNamespace(name="tools")])

        async def _check_model(self, request: Any) -> str | None:
            return "no such model" if request.model == "nobody" else None

        def create_error_response(self, message: str) -> str:
            return f"400: {message}"

    place = ModuleType("serving")
    vars(place)["BaseServing"] = Serving
    monkeypatch.setattr(request_pins, "_BASES", (("serving", "BaseServing"),))
    monkeypatch.setattr(request_pins, "_ENTRIES", ())
    monkeypatch.setattr(request_pins, "import_module", {"serving": place}.__getitem__)
    monkeypatch.setitem(sys.modules, "serving", place)
    return Serving()


@pytest.mark.parametrize("k", [99, -1, True, "0"])
async def test_a_k_that_cannot_be_is_refused_before_an_answer_begins(
    k: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that has begun is torn, and the requests of beams have no k to look at."""
    serving = serving_in(monkeypatch)
    request_pins.refuse_impossible(5)
    refused = await serving._check_model(ask("tools", specdeck_k=k))
    assert refused is not None
    assert refused.startswith("400: specdeck_k requires a whole number from 0 to 5")
    for good in (ask("tools", specdeck_k=5), ask("tools")):
        assert await serving._check_model(good) is None


async def test_where_the_name_is_checked_the_request_is_marked_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serving = serving_in(monkeypatch)
    assert request_pins.mark_exact_requests(NAMES) is None
    good = ask("tools-exact")
    assert await serving._check_model(good) is None
    assert good.vllm_xargs == {"specdeck_k": 0, "specdeck_exact": 1}
    refused = await serving._check_model(ask("tools-exact", specdeck_k=1))
    assert refused is not None
    assert refused.startswith("400: tools-exact is answered target-only")
    assert await serving._check_model(ask("nobody")) == "no such model"
    batch = Batch(model="tools-exact")
    assert await serving._check_model(batch) is None
    assert batch.model_dump()["vllm_xargs"] == {"specdeck_k": 0, "specdeck_exact": 1}


class Batch(BaseModel, extra="allow"):
    """Many conversations in one request: vLLM copies what it has no field for into each."""

    model: str


class Parameters(BaseModel):
    extra_args: dict[str, Any] | None = None


class Tokens(BaseModel):
    """Tokens in, tokens out: the client gives the sampling parameters themselves."""

    model: str
    sampling_params: Parameters


def test_a_batch_under_an_exact_name_is_pinned() -> None:
    batch = Batch(model="tools-exact")
    assert mark_exact(batch, NAMES, None) is None
    assert batch.model_dump()["vllm_xargs"] == {"specdeck_k": 0, "specdeck_exact": 1}
    assert (
        mark_exact(Batch.model_validate({"model": "tools-exact", "vllm_xargs": "x"}), NAMES, None)
        is None
    )


def test_tokens_under_an_exact_name_are_pinned_and_under_another_one_not() -> None:
    def ask_for(name: str, **extra: Any) -> Tokens:
        return Tokens(model=name, sampling_params=Parameters(extra_args=extra or None))

    exact = ask_for("tools-exact", other=1)
    assert mark_exact(exact, NAMES, None) is None
    assert exact.sampling_params.extra_args == {"other": 1, "specdeck_k": 0, "specdeck_exact": 1}
    claimed = ask_for("tools", specdeck_exact=1)
    assert mark_exact(claimed, NAMES, None) is None
    assert claimed.sampling_params.extra_args == {}
    assert mark_exact(ask_for("tools-exact", specdeck_k=3), NAMES, None) is not None


def test_a_request_that_generates_nothing_is_let_through() -> None:
    class Detokenize(BaseModel):
        model: str

    assert mark_exact(Detokenize(model="tools-exact"), NAMES, None) is None
