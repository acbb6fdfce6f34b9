"""Requests under exact names are pinned to k = 0, and nobody can say so but us."""

from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.plugin import request_pins
from specdeck.engine.plugin.request_pins import Pins, mark_exact

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
