"""What each request of a scheduler drafts, and its cohort once it has finished.

vLLM tells a draft's request where it counts the draft: there is one small function around that
call, which enters two numbers into the request's tally. Of a large batch that is too many calls,
and the step is read as a whole instead (`step_tallies`), held against vLLM's sums of it. What a
request was like is looked up when it ends. Whatever vLLM counts is counted here, by the same
rules, so that both agree to the last draft.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice, pairwise
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
from specdeck.engine.plugin.step_tallies import StepTallies, Sums
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
_FEWEST_DRAFTS = 16
"""Drafts of a step from which it is read as a whole."""
_PAUSE_STEPS = 64
"""Steps whose drafts are counted one by one after one that could not be read as a whole."""
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
        self._steps = StepTallies(k_max, self._tallies)
        self._pause = 0
        """Steps until one is read as a whole again."""
        self._summed = False
        """Whether this vLLM was seen to sum its steps up."""
        self._begun = False
        """Whether the step under way is read as a whole."""
        self._ended: list[Any] | None = None
        """Requests that ended in a step that is read as a whole; None outside of such a step."""
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
            self._plain = scheduler.make_spec_decoding_stats
            self._wrap(scheduler, "make_spec_decoding_stats", self._with_tally)
            self._one_by_one = scheduler.make_spec_decoding_stats
            self._wrap(scheduler, "_free_request", self._before_free)
            if not find_missing(scheduler, optional=True):
                self._wrap(scheduler, "update_from_output", self._whole_steps)

    @property
    def failed(self) -> bool:
        """Whether counting ended with an error, which the engine's log has."""
        return self._guard.failed

    def sum_unfinished(self) -> list[int]:
        """The row of all requests that have drafts and have not finished."""
        self._guard(self._steps.fold)
        tallies = list(self._tallies.values())
        summed = map(sum, zip(*tallies, strict=True)) if tallies else [0] * self.cells.size
        return [len(tallies), 0, 0, 0, *summed]

    def _forget(self) -> None:
        self._steps.clear()
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
            self._steps.open(request.request_id)
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

    def _whole_steps(self, update: Any) -> Any:
        scheduler, guard = self._scheduler, self._guard

        def update_and_tally(scheduler_output: Any, model_runner_output: Any) -> Any:
            if (
                not self._summed
                or len(scheduler_output.scheduled_spec_decode_tokens) < _FEWEST_DRAFTS
                or guard.failed
                or not self._try_to_begin(scheduler_output, model_runner_output)
            ):
                outputs = update(scheduler_output, model_runner_output)
                if not self._summed:
                    self._summed = _find_sums(outputs) is not None
                return outputs
            self._ended = []
            scheduler.make_spec_decoding_stats = self._plain
            outputs = None
            try:
                outputs = update(scheduler_output, model_runner_output)
            finally:
                scheduler.make_spec_decoding_stats = self._one_by_one
                guard(self._end_step, outputs)
            return outputs

        return update_and_tally

    def _try_to_begin(self, output: Any, result: Any) -> bool:
        """Whether a step can be read as a whole."""
        if self._pause:
            self._pause -= 1
            return False
        # Whoever else counts drafts one by one has put a function of its own there.
        if self._scheduler.make_spec_decoding_stats is not self._one_by_one:
            return False
        if output.num_invalid_spec_tokens:
            return False
        self._begun = False
        self._guard(self._begin, output, result)
        return self._begun

    def _begin(self, output: Any, result: Any) -> None:
        drafts = output.scheduled_spec_decode_tokens
        self._begun = self._steps.begin(result.req_ids, drafts, result.sampled_token_ids)

    def _end_step(self, outputs: Any) -> None:
        """Enters a step that vLLM has accounted for, and those requests that ended in it."""
        ended, self._ended = self._ended or [], None
        stats = _find_sums(outputs)
        if stats is None:
            counted = Sums(0, 0, 0)
        else:
            counted = Sums(
                stats.num_drafts,
                stats.num_draft_tokens,
                sum(stats.num_accepted_tokens_per_pos),
            )
        if not self._steps.enter(counted):
            # Only whose drafts they were is not known.
            self._pause = _PAUSE_STEPS
            if stats is not None:
                self.cells.add_drafts(_STRANGE, self._read_sums(stats))
        for request in ended:
            self._finish(request)

    def _read_sums(self, stats: Any) -> list[int]:
        """The tally of all drafts of a step, from how many had and accepted each position."""
        had = [stats.num_drafts, *stats.num_draft_tokens_per_pos[: self.k_max], 0]
        taken = [stats.num_drafts, *stats.num_accepted_tokens_per_pos[: self.k_max], 0]
        return [more - less for each in (had, taken) for more, less in pairwise(each)]

    def _before_free(self, free: Any) -> Any:
        guard = self._guard

        def count_and_free(request: Any, *args: Any, **kwargs: Any) -> Any:
            if self._ended is None:
                guard(self._finish, request)
            else:
                self._ended.append(request)
            return free(request, *args, **kwargs)

        return count_and_free

    def _finish(self, request: Any) -> None:
        request_id = request.request_id
        self._steps.close(request_id)
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
            _name_rule(params),
            "greedy" if params.temperature < _GREEDY else "sampled",
            "yes" if extra and KEY in extra else "no",
            reason if reason in _REASONS else OTHER,
        )

    def active(self) -> list[dict[str, Any]]:
        """Requests under way, running ones first, as `protocol.requests` has them."""
        now = time()
        self._guard(self._steps.fold)
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

    def list_finished(self) -> list[dict[str, Any]]:
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


def _find_sums(outputs: Any) -> Any:
    """vLLM's own over the drafts of a step, which go to whom its outputs go; None without any."""
    for each in (outputs or {}).values():
        stats = each.scheduler_stats
        if stats is not None:
            return stats.spec_decoding_stats
    return None


def find_missing(scheduler: Any, *, optional: bool = False) -> tuple[Gap, ...]:
    """What this takes of vLLM and is not there; `optional` has what it can do without."""
    rows = [row for row in ROWS if _USER in row.users and row.optional == optional]
    return find_gaps({"Scheduler": scheduler}, "core", rows=rows)


def _name_rule(params: Any) -> str:
    """What the output has to obey; of several rules, the one that leaves the draft least."""
    outputs = params.structured_outputs
    if outputs is not None:
        for name in _STRUCTURES:
            if getattr(outputs, name) is not None:
                return name
    if params.allowed_token_ids:
        return "allowed_tokens"
    if params.logit_bias:
        return "logit_bias"
    if params.bad_words:
        return "bad_words"
    if params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1.0:
        return "penalties"
    return NONE
