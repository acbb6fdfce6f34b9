"""Requests with a k of their own, on stand-ins for vLLM's schedulers."""

from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin.request_pins import Pins, guard, pinned_k


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
