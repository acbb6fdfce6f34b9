"""Requests pinned to a k of their own, so that exact traffic can share an engine.

A request carries `"vllm_xargs": {"specdeck_k": 0}` (0 to k_max). The API server's
process checks the figure, and the scheduler then verifies that many drafts at most for
the request; the drafter still runs its row, so that its KV cache stays in step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from specdeck.engine.plugin.safely import Safely

KEY = "specdeck_k"
EXACT = "specdeck_exact"
"""Put beside the key by the API server's process on requests under an exact name."""

_NEEDED = ("add_request", "update_draft_token_ids", "requests")
"""What pinning uses of vLLM's scheduler."""


def pinned_k(extra_args: Mapping[str, Any] | None, k_max: int) -> int | None:
    """The k that a request asks for; None when it asks for none.

    Raises ValueError on anything but 0 to `k_max`.

    >>> pinned_k({"specdeck_k": 0}, k_max=5), pinned_k({}, k_max=5)
    (0, None)
    """
    if not extra_args or KEY not in extra_args:
        return None
    k = extra_args[KEY]
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= k_max:
        raise ValueError(f"{KEY} wants a whole number from 0 to {k_max}, not {k!r}")
    return k


def guard(engine_client: Any, k_max: int, exact_seen: Callable[[], None] = lambda: None) -> None:
    """Has the API server's process refuse requests with a k that cannot be.

    `exact_seen` is called for every request under an exact name.

    vLLM ignores keys of vllm_xargs that it does not know, and a pin that was silently
    ignored would be worse than none.
    """
    processor = getattr(engine_client, "input_processor", None)
    if processor is None:
        return
    process, refused = processor.process_inputs, _answered_with_400()

    @functools.wraps(process)
    def checked(request_id: Any, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        extra = getattr(params, "extra_args", None)
        try:
            pinned_k(extra, k_max)
        except ValueError as error:
            raise refused(str(error)) from None
        if extra and EXACT in extra:
            exact_seen()
        return process(request_id, prompt, params, *args, **kwargs)

    processor.process_inputs = checked


def _answered_with_400() -> type[Exception]:
    """What vLLM answers with 400 when it comes from within a request."""
    try:
        from vllm.exceptions import VLLMValidationError
    except ImportError:  # before there was one, a ValueError served
        return ValueError
    kind: type[Exception] = VLLMValidationError
    return kind


class Pins:
    """The pinned requests of one scheduler."""

    def __init__(self, scheduler: Any, k_max: int) -> None:
        self._scheduler = scheduler
        self._k_max = k_max
        self._pinned: dict[str, int] = {}
        self._exact: dict[str, Any] = {}
        """vLLM's own request objects, until they are finished and counted."""
        self._counted = 0
        self.exact_requests = 0
        """Requests under exact names so far."""
        self._safely = Safely("pinning requests")
        self.available = all(hasattr(scheduler, name) for name in _NEEDED)
        if self.available:
            self._wrap("add_request", self._added)
            # The plain scheduler is given drafts after a step, the asynchronous one plans
            # for them while it schedules.
            self._wrap("update_draft_token_ids", self._trim)
            if hasattr(scheduler, "_spec_token_placeholders"):
                self._wrap("_update_after_schedule", self._trim)

    def __len__(self) -> int:
        """Pinned requests that are not finished."""
        return sum(request_id in self._scheduler.requests for request_id in self._pinned)

    @property
    def exact_running(self) -> int:
        """Unfinished requests under exact names."""
        return sum(request_id in self._scheduler.requests for request_id in self._exact)

    @property
    def exact_tokens(self) -> int:
        """Tokens generated for requests under exact names."""
        return self._counted + sum(map(_tokens, self._exact.values()))

    def _wrap(self, name: str, afterwards: Any) -> None:
        original = getattr(self._scheduler, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._safely(afterwards, *args)
            return result

        setattr(self._scheduler, name, wrapped)

    def _added(self, request: Any, *_: Any) -> None:
        self._trim()  # with k = 0 for all, vLLM has no drafts to hand over for long
        params = getattr(request, "sampling_params", None)
        # Refused by the API server; one that came past it must not end the engine.
        with suppress(ValueError):
            extra = getattr(params, "extra_args", None)
            k = pinned_k(extra, self._k_max)
            if k is None:
                return
            self._pinned[request.request_id] = k
            if k == 0 and extra and EXACT in extra:
                self._exact[request.request_id] = request
                self.exact_requests += 1

    def _trim(self, *_: Any) -> None:
        if not self._pinned:
            return
        for request_id, k in list(self._pinned.items()):
            request = self._scheduler.requests.get(request_id)
            if request is None:
                del self._pinned[request_id]
                if (done := self._exact.pop(request_id, None)) is not None:
                    self._counted += _tokens(done)
            elif len(request.spec_token_ids) > k:
                # A new list: the asynchronous scheduler shares one among its requests.
                request.spec_token_ids = request.spec_token_ids[:k]


def _tokens(request: Any) -> int:
    return int(getattr(request, "num_output_tokens", 0))
