"""What every step of the scheduler did, taken down as vLLM accounts for it."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from specdeck.engine.plugin.safely import Safely

_REMEMBERED_STEPS = 4096

Record = dict[str, Any]
"""`control.protocol.Step`, with `accepted_per_position`, `seconds`, `committed`, `prefill`."""


class Recorder:
    """Wraps one scheduler's methods once and counts what passes through them."""

    def __init__(self, scheduler: Any, k_max: int) -> None:
        self._scheduler = scheduler
        self.before_step: Callable[[], None] = lambda: None
        """Called before every scheduling; set by whoever holds the control state."""
        self.after_step: Callable[[Record], None] = lambda record: None
        """Called with every step that was accounted for."""
        self.ring: deque[Record] = deque(maxlen=_REMEMBERED_STEPS)
        self.scheduled = 0
        self.drafts = 0
        self.drafted = [0] * k_max
        self.accepted = [0] * k_max
        self._outstanding: dict[int, int] = {}
        self._k_max = k_max
        self._ended: float | None = None
        """When the step before ended; None when the engine had nothing to do after it."""
        self._safely = Safely("watching and steering")
        self._clear()
        self._wrap("schedule", self._schedule)
        self._wrap("update_from_output", self._update_from_output)
        self._wrap("make_spec_decoding_stats", self._make_spec_decoding_stats)

    def _wrap(self, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = getattr(self._scheduler, name)
        setattr(self._scheduler, name, functools.wraps(original)(wrapper(original)))

    def _clear(self) -> None:
        self._drafts = self._drafted = 0
        self._accepted = [0] * self._k_max

    def _schedule(self, schedule: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._safely(self.before_step)
            output = schedule(*args, **kwargs)
            self.scheduled += 1
            if len(self._outstanding) > 64:  # steps that vLLM dropped without an update
                self._outstanding.clear()
            self._outstanding[id(output)] = self.scheduled
            return output

        return wrapped

    def _update_from_output(self, update: Any) -> Any:
        def wrapped(output: Any, *args: Any, **kwargs: Any) -> Any:
            self._clear()
            outputs = update(output, *args, **kwargs)
            step = self._outstanding.pop(id(output), None)
            if step is not None and output.total_num_scheduled_tokens:
                self._safely(self._take_down, step, output, outputs)
            return outputs

        return wrapped

    def _take_down(self, step: int, output: Any, outputs: Any) -> None:
        now, before = monotonic(), self._ended
        # A step that follows an idle engine began we know not when.
        self._ended = now if self._scheduler.running else None
        requests, tokens = len(output.num_scheduled_tokens), output.total_num_scheduled_tokens
        verifying = sum(map(len, output.scheduled_spec_decode_tokens.values()))
        record = {
            "step": step,
            "t": now,
            "requests": requests,
            "tokens": tokens,
            "k": output.num_spec_tokens_to_schedule,
            "drafts": self._drafts,
            "drafted": self._drafted,
            "accepted": sum(self._accepted),
            "accepted_per_position": tuple(self._accepted),
            "seconds": None if before is None else now - before,
            "committed": sum(
                len(o.new_token_ids) for each in outputs.values() for o in each.outputs
            ),
            # A request that decodes is given one token and those it verifies.
            "prefill": max(0, tokens - requests - verifying),
        }
        self.ring.append(record)
        self.after_step(record)

    def _make_spec_decoding_stats(self, make: Any) -> Any:
        signature = inspect.signature(make)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._safely(self._count, signature, args, kwargs)
            return make(*args, **kwargs)

        return wrapped

    def _count(self, signature: inspect.Signature, args: Any, kwargs: Any) -> None:
        call = signature.bind(*args, **kwargs).arguments
        invalid = call.get("num_invalid_spec_tokens") or {}
        drafted = call["num_draft_tokens"] - invalid.get(call.get("request_id"), 0)
        accepted = call["num_accepted_tokens"]
        if drafted <= 0:
            return
        self.drafts += 1
        self._drafts += 1
        self._drafted += drafted
        for position in range(min(drafted, self._k_max)):
            self.drafted[position] += 1
        for position in range(min(accepted, self._k_max)):
            self.accepted[position] += 1
            self._accepted[position] += 1
