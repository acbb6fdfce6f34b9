"""Requests with a k of their own, and those under exact names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin import request_pins
from specdeck.engine.plugin.request_pins import Pins, guard, mark_exact, pinned_k


class Scheduler:
    """As much of vLLM's scheduler as pinning touches."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request

    def update_draft_token_ids(self, drafts: list[int]) -> None:
        for request in self.requests.values():
            request.spec_token_ids = list(drafts)


class AsyncScheduler(Scheduler):
    """Gives every request the same list of placeholders."""

    def __init__(self) -> None:
        super().__init__()
        self._spec_token_placeholders = [-1] * 5

    def _update_after_schedule(self, output: Any) -> None:
        for request in self.requests.values():
            request.spec_token_ids = self._spec_token_placeholders


def request(name: str, **extra_args: Any) -> Any:
    params = SimpleNamespace(extra_args=extra_args or None)
    return SimpleNamespace(request_id=name, sampling_params=params, spec_token_ids=[])


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
    scheduler.update_draft_token_ids([7] * 5)
    lengths = {name: len(one.spec_token_ids) for name, one in scheduler.requests.items()}
    assert lengths == {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "free": 5}
    assert len(pins) == 6


def test_the_asynchronous_schedulers_shared_list_is_left_alone() -> None:
    scheduler = AsyncScheduler()
    Pins(scheduler, 5)
    scheduler.add_request(request("pinned", specdeck_k=2))
    scheduler.add_request(request("free"))
    scheduler._update_after_schedule(None)
    assert len(scheduler.requests["pinned"].spec_token_ids) == 2
    assert scheduler.requests["free"].spec_token_ids is scheduler._spec_token_placeholders
    assert len(scheduler._spec_token_placeholders) == 5


def test_a_finished_request_is_forgotten() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    scheduler.add_request(request("gone", specdeck_k=0))
    del scheduler.requests["gone"]
    assert len(pins) == 0
    scheduler.update_draft_token_ids([7])
    assert pins._pinned == {}


def test_nonsense_that_came_past_the_api_server_ends_nothing() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    scheduler.add_request(request("odd", specdeck_k="all"))
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


def test_finished_requests_are_let_go_of_without_a_single_draft() -> None:
    scheduler = Scheduler()
    pins = Pins(scheduler, 5)
    for number in range(50):
        extra = {"specdeck_k": 0, "specdeck_exact": 1}
        scheduler.add_request(
            SimpleNamespace(
                request_id=str(number), sampling_params=SimpleNamespace(extra_args=extra),
                spec_token_ids=[], num_output_tokens=2,
            )
        )  # fmt: skip
        del scheduler.requests[str(number)]
    assert len(pins._pinned) == len(pins._exact) == 1
    assert (pins.exact_requests, pins.exact_tokens) == (50, 100)


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
    scheduler = SimpleNamespace(requests={})
    scheduler.add_request = lambda one: scheduler.requests.update({one.request_id: one})
    scheduler.update_draft_token_ids = lambda drafts: None
    pins = Pins(scheduler, 5)

    def request(name: str, **extra: Any) -> Any:
        return SimpleNamespace(
            request_id=name, sampling_params=SimpleNamespace(extra_args=extra),
            spec_token_ids=[], num_output_tokens=7,
        )  # fmt: skip

    for name in "abc":
        scheduler.add_request(request(name, specdeck_k=0, specdeck_exact=1))
    scheduler.add_request(request("pinned", specdeck_k=0))
    del scheduler.requests["a"]
    assert (pins.exact_requests, pins.exact_running, pins.exact_tokens) == (3, 2, 21)
    scheduler.update_draft_token_ids(None)
    scheduler.requests.clear()
    assert (pins.exact_requests, pins.exact_running, pins.exact_tokens) == (3, 0, 21)
    assert len(pins) == 0


async def test_where_the_name_is_checked_the_request_is_marked_or_refused() -> None:
    class Serving:
        models = SimpleNamespace(base_model_paths=[SimpleNamespace(name="tools")])

        async def _check_model(self, request: Any) -> str | None:
            return "no such model" if request.model == "nobody" else None

        def create_error_response(self, message: str) -> str:
            return f"400: {message}"

    request_pins._wrap_check(Serving, NAMES)
    serving = Serving()
    good = ask("tools-exact")
    assert await serving._check_model(good) is None
    assert good.vllm_xargs == {"specdeck_k": 0, "specdeck_exact": 1}
    refused = await serving._check_model(ask("tools-exact", specdeck_k=1))
    assert refused is not None
    assert refused.startswith("400: tools-exact is answered target-only")
    assert await serving._check_model(ask("nobody")) == "no such model"
    assert await serving._check_model(SimpleNamespace(model="tools-exact")) is None
