"""What each request of a scheduler drafts, and its cohort once it has finished.

vLLM tells a draft's request where it counts the draft, and nowhere else: so there is one small
function around that call, which enters two numbers into the request's tally. It runs once for
each request of a step, not for each token. What a request was like is looked up when it ends.
Whatever vLLM counts is counted here, by the same rules, so that both agree to the last draft.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from time import time
from typing import Any

from specdeck.engine.plugin.cohorts import (
    CohortCells,
    Key,
    cached_word,
    length_word,
    read_tally,
)
from specdeck.engine.plugin.contract import ROWS, Gap
from specdeck.engine.plugin.guards import DisableOnError
from specdeck.engine.plugin.request_pins import KEY, pinned_k
from specdeck.engine.plugin.take_hold import find_gaps
from specdeck.engine.protocol.cohorts import DIMENSIONS, NONE, OTHER
from specdeck.engine.protocol.requests import MOST_FINISHED, MOST_RUNNING, MOST_WAITING

logger = logging.getLogger("vllm.specdeck")

_USER = "plugin.request_counts"
_STRUCTURES = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
"""What vLLM can make an output obey, by the names of its parameters; one at a time."""
_FINISH = DIMENSIONS.index("finish")
_REASONS = frozenset({"stop", "length", "abort", "error", "repetition"})
_GREEDY = 1e-5
"""Temperatures below are greedy to vLLM."""
_MOST_LOOKED_AT = 1024
"""Requests that a look goes through for those that wait, which may be tens of thousands."""
_STATES = {"RUNNING": "running", "PREEMPTED": "preempted"}
_STRANGE: Key = (OTHER,) * len(DIMENSIONS)
"""A request that cannot be told: it is counted all the same."""


def _raise(error: Exception) -> None:
    raise error


class RequestCounts:
    """The requests of one scheduler."""

    def __init__(self, scheduler: Any, k_max: int) -> None:
        self.cells = CohortCells(k_max)
        self.k_max = k_max
        self._tallies: dict[str, list[int]] = {}
        """Of unfinished requests that have drafts, by vLLM's id."""
        self._held: dict[str, tuple[int, Any]] = {}
        """Number of each, and what was cached of its prompt: vLLM lets go of it at the first
        token."""
        self._numbers = count(1)
        self._finished: deque[tuple[Any, ...]] = deque(maxlen=MOST_FINISHED)
        """The newest last, in as few words as it takes: nothing of a client's."""
        self._scheduler = scheduler
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
        self._held.clear()

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
        if request.request_id not in self._held:
            self._held[request.request_id] = (next(self._numbers), request.prefill_stats)

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
                try:
                    tally = tallies.get(request_id)
                    if tally is None:
                        tally = tallies[request_id] = [0] * size
                    drafted = num_draft_tokens
                    if num_invalid_spec_tokens:
                        drafted -= num_invalid_spec_tokens.get(request_id, 0)
                    tally[drafted] += 1
                    tally[accepted_from + num_accepted_tokens] += 1
                except (IndexError, TypeError, AttributeError) as error:  # a guard costs a call
                    guard(_raise, error)
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
        number, prefill = self._held.pop(request_id, (0, None))
        key = self._try_to_classify(request, prefill, sees=True)
        self.cells.add(
            key, tally, request.num_prompt_tokens, request.num_output_tokens,
            request.num_preemptions,
        )  # fmt: skip
        self._finished.append((
            number, time(), request.arrival_time, request.num_prompt_tokens,
            request.num_output_tokens, request.num_preemptions,
            # Not what it asked with, which may be as long as its client likes.
            _own_k(request.sampling_params, self.k_max), key, tally,
        ))  # fmt: skip

    def _try_to_classify(self, request: Any, prefill: Any, *, sees: bool = False) -> Key:
        """The words of a request; with `sees`, its adapter was seen once more by that."""
        try:
            return self._classify(request, prefill, sees=sees)
        except Exception:
            if not self._told_strange:
                self._told_strange = True
                logger.exception("specdeck cannot tell a request's cohort; it counts as `other`")
            return _STRANGE

    def _classify(self, request: Any, prefill: Any, *, sees: bool) -> Key:
        params, lora, prompt = (
            request.sampling_params,
            request.lora_request,
            request.num_prompt_tokens,
        )
        # vLLM fills it in when it first schedules the request.
        cached = prefill.num_cached_tokens if prefill and prefill.num_prompt_tokens else None
        ended = request.get_finished_reason()
        reason = "" if ended is None else ended.name.lower()
        name_adapter = self.cells.name_adapter if sees else self.cells.find_adapter
        extra = params.extra_args
        return (
            length_word(prompt),
            cached_word(cached, prompt),
            length_word(request.num_output_tokens),
            NONE if lora is None else name_adapter(lora.lora_name),
            NONE if params.structured_outputs is None else _structure(params.structured_outputs),
            "greedy" if params.temperature < _GREEDY else "sampled",
            "yes" if extra and KEY in extra else "no",
            reason if reason in _REASONS else OTHER,
        )

    def active(self) -> list[dict[str, Any]]:
        """Requests under way, running ones first, as `protocol.requests` has them."""
        now = time()
        return [self._describe(request, now) for request in self._under_way()]

    def _under_way(self) -> Iterator[Any]:
        scheduler = self._scheduler
        running = scheduler.running[:MOST_RUNNING]
        yield from running
        ids = {request.request_id for request in running}
        looked_at = islice(scheduler.requests.values(), _MOST_LOOKED_AT)
        waiting = (one for one in looked_at if one.request_id not in ids and not one.is_finished())
        yield from islice(waiting, MOST_WAITING)

    def _describe(self, request: Any, now: float) -> dict[str, Any]:
        number, prefill = self._held.get(request.request_id, (0, None))
        key = self._try_to_classify(request, prefill)
        return {
            "number": number,
            "state": _STATES.get(request.status.name, "waiting"),
            "age_s": max(0.0, now - request.arrival_time),
            "ended": None,
            **self._figures(
                request.num_prompt_tokens, request.num_output_tokens, request.num_preemptions,
                _own_k(request.sampling_params, self.k_max), key,
                self._tallies.get(request.request_id),
            ),
        }  # fmt: skip

    def finished(self) -> list[dict[str, Any]]:
        """Those that ended last, the newest first."""
        return [
            {
                "number": number,
                "state": key[_FINISH],
                "age_s": max(0.0, ended - arrived),
                "ended": ended,
                **self._figures(prompt, output, preemptions, k, key, tally),
            }
            for number, ended, arrived, prompt, output, preemptions, k, key, tally in reversed(
                self._finished
            )
        ]

    def _figures(
        self, prompt: int, output: int, preemptions: int, k: int | None, key: Key,
        tally: list[int] | None,
    ) -> dict[str, Any]:  # fmt: skip
        found = read_tally(tally or [0] * self.cells.size, self.k_max)
        words = dict(zip(DIMENSIONS, key, strict=True))
        return {
            "prompt_tokens": prompt,
            "output_tokens": output,
            "preemptions": preemptions,
            "k": k,
            "drafts": found.drafts,
            "drafted": sum(found.drafted),
            "accepted": sum(found.accepted),
            **{name: words[name] for name in ("cached", "adapter", "structured", "temperature")},
        }


def _own_k(params: Any, k_max: int) -> int | None:
    try:
        return pinned_k(getattr(params, "extra_args", None), k_max)
    except ValueError:  # refused by the API server, and so not in force
        return None


def find_missing(scheduler: Any) -> tuple[Gap, ...]:
    """What this takes of vLLM and is not there."""
    rows = [row for row in ROWS if _USER in row.users and not row.optional]
    return find_gaps({"Scheduler": scheduler}, "core", rows=rows)


def _structure(outputs: Any) -> str:
    for name in _STRUCTURES:
        if getattr(outputs, name) is not None:
            return name
    return NONE
