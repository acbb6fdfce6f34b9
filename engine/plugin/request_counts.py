"""What each request of a scheduler drafts, and its cohort once it has finished.

vLLM tells a draft's request where it counts the draft, and nowhere else: so there is one small
function around that call, which enters two numbers into the request's tally. It runs once for
each request of a step, not for each token. What a request was like is looked up when it ends.
Whatever vLLM counts is counted here, by the same rules, so that both agree to the last draft.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from specdeck.engine.plugin.cohorts import CohortCells, Key, cached_word, length_word
from specdeck.engine.plugin.contract import ROWS, Gap
from specdeck.engine.plugin.guards import DisableOnError
from specdeck.engine.plugin.request_pins import KEY
from specdeck.engine.plugin.take_hold import find_gaps
from specdeck.engine.protocol.cohorts import DIMENSIONS, NONE, OTHER

logger = logging.getLogger("vllm.specdeck")

_USER = "plugin.request_counts"
_STRUCTURES = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
"""What vLLM can make an output obey, by the names of its parameters; one at a time."""
_REASONS = frozenset({"stop", "length", "abort", "error", "repetition"})
_GREEDY = 1e-5
"""Temperatures below are greedy to vLLM."""
_STRANGE: Key = (OTHER,) * len(DIMENSIONS)
"""A request that cannot be told: it is counted all the same."""


class RequestCounts:
    """The requests of one scheduler."""

    def __init__(self, scheduler: Any, k_max: int) -> None:
        self.cells = CohortCells(k_max)
        self.k_max = k_max
        self._tallies: dict[str, list[int]] = {}
        """Of unfinished requests that have drafts, by vLLM's id."""
        self._prefills: dict[str, Any] = {}
        """What was cached of their prompts: vLLM lets go of it at the first token."""
        self._guard = DisableOnError("telling requests apart", on_failure=self._forget)
        self._told_strange = False
        self.gaps = find_missing(scheduler)
        self.available = scheduler is not None and not self.gaps
        if self.available:
            self._wrap(scheduler, "add_request", self._after_add)
            self._wrap(scheduler, "make_spec_decoding_stats", self._with_tally)
            self._wrap(scheduler, "_free_request", self._before_free)

    @property
    def failed(self) -> bool:
        """Whether counting ended with an error, which the engine's log has."""
        return self._guard.failed

    def unfinished(self) -> list[int]:
        """The row of all requests that have drafts and have not finished."""
        tallies = list(self._tallies.values())
        summed = map(sum, zip(*tallies, strict=True)) if tallies else [0] * self.cells.size
        return [len(tallies), 0, 0, 0, *summed]

    def _forget(self) -> None:
        self._tallies.clear()
        self._prefills.clear()

    def _wrap(self, scheduler: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = getattr(scheduler, name)
        setattr(scheduler, name, functools.wraps(original)(wrapper(original)))

    def _after_add(self, add_request: Any) -> Any:
        guard = self._guard

        def add_and_hold(request: Any, *args: Any, **kwargs: Any) -> Any:
            result = add_request(request, *args, **kwargs)
            guard(self._hold, request)
            return result

        return add_and_hold

    def _hold(self, request: Any) -> None:
        # The next words of a session come under the id of a request that is there.
        self._prefills.setdefault(request.request_id, request.prefill_stats)

    def _with_tally(self, make: Any) -> Any:
        tallies, size, accepted_from = self._tallies, self.cells.size, self.k_max + 1
        guard = self._guard

        # Named as vLLM passes them, which costs less than taking whatever comes.
        def make_and_tally(
            spec_decoding_stats: Any,
            num_draft_tokens: int,
            num_accepted_tokens: int,
            num_invalid_spec_tokens: Any,
            request_id: str,
        ) -> Any:
            if num_draft_tokens and not guard.failed:
                tally = tallies.get(request_id)
                if tally is None:
                    tally = tallies[request_id] = [0] * size
                drafted = num_draft_tokens
                if num_invalid_spec_tokens:
                    drafted -= num_invalid_spec_tokens.get(request_id, 0)
                tally[drafted] += 1
                tally[accepted_from + num_accepted_tokens] += 1
            return make(
                spec_decoding_stats,
                num_draft_tokens=num_draft_tokens,
                num_accepted_tokens=num_accepted_tokens,
                num_invalid_spec_tokens=num_invalid_spec_tokens,
                request_id=request_id,
            )

        return make_and_tally

    def _before_free(self, free: Any) -> Any:
        guard = self._guard

        def count_and_free(request: Any, *args: Any, **kwargs: Any) -> Any:
            guard(self._finish, request)
            return free(request, *args, **kwargs)

        return count_and_free

    def _finish(self, request: Any) -> None:
        request_id = request.request_id
        tally = self._tallies.pop(request_id, None)
        prefill = self._prefills.pop(request_id, None)
        try:
            key = self._classify(request, prefill)
        except Exception:
            key = _STRANGE
            if not self._told_strange:
                self._told_strange = True
                logger.exception("specdeck cannot tell a request's cohort; it counts as `other`")
        self.cells.add(
            key, tally, request.num_prompt_tokens, request.num_output_tokens,
            request.num_preemptions,
        )  # fmt: skip

    def _classify(self, request: Any, prefill: Any) -> Key:
        params, lora, prompt = (
            request.sampling_params,
            request.lora_request,
            request.num_prompt_tokens,
        )
        # vLLM fills it in when it first schedules the request.
        cached = prefill.num_cached_tokens if prefill and prefill.num_prompt_tokens else None
        reason = request.get_finished_reason().name.lower()
        extra = params.extra_args
        return (
            length_word(prompt),
            cached_word(cached, prompt),
            length_word(request.num_output_tokens),
            NONE if lora is None else self.cells.name_adapter(lora.lora_name),
            NONE if params.structured_outputs is None else _structure(params.structured_outputs),
            "greedy" if params.temperature < _GREEDY else "sampled",
            "yes" if extra and KEY in extra else "no",
            reason if reason in _REASONS else OTHER,
        )


def find_missing(scheduler: Any) -> tuple[Gap, ...]:
    """What this takes of vLLM and is not there."""
    rows = [row for row in ROWS if _USER in row.users and not row.optional]
    return find_gaps({"Scheduler": scheduler}, "core", rows=rows)


def _structure(outputs: Any) -> str:
    for name in _STRUCTURES:
        if getattr(outputs, name) is not None:
            return name
    return NONE
