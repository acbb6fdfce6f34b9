"""Steps of no request on an idle engine core, made to learn what a step of one shape costs.

vLLM's own dummy run is of no use for that. On the V1 runner it makes each of the drafter's
passes on as many tokens as the target's, without attention, and the drafter writes its KV where
the last requests had theirs, which the prefix cache still holds. So the scheduler's word is made up
here instead, as vLLM itself does to warm its kernels up: requests that have read their prompts
already, every block of whose KV is the null block, which belongs to nobody. The executor runs
it as it runs any step, and nothing of it comes to the scheduler, to a counter or to a client.

Each step repeats the one before it, since the requests are told to have generated no more. They
are finished before the engine core goes on, and the null block is as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

CONTEXT = 128
"""Tokens that each request is said to have read, where the model has room for them."""
_TOKEN = 1
"""That all text is made of."""
_PREFIX = "specdeck-dummy-"


class DummyRun(NamedTuple):
    """What some dummy steps of one shape took."""

    seconds: tuple[float, ...]
    """Of each; the first one is not among them, since it reads the prompts."""
    interrupted: bool
    """Whether they ended early, since the engine core was asked for something."""


class DummySteps:
    """Makes dummy steps on one engine core; only while it has no requests."""

    def __init__(self, core: Any, *, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` gives seconds."""
        self._core = core
        self._clock = clock

    def run(self, batch: int, k: int, steps: int, *, budget_s: float) -> DummyRun:
        """Makes `steps` of them, or as many as begin in `budget_s`, but one at least.

        They end after the one under way as soon as anybody asks the engine core for anything.
        """
        ids = [f"{_PREFIX}{number}" for number in range(batch)]
        taken: list[float] = []
        began = self._clock()
        self._on_workers("keep", self._null)
        try:
            self._make(self._begin(ids, k))
            while len(taken) < steps and not self._is_wanted():
                start = self._clock()
                self._make(self._repeat(ids, k))
                taken.append(self._clock() - start)
                if self._clock() - began > budget_s:
                    break
            return DummyRun(tuple(taken), self._is_wanted())
        finally:
            try:
                self._core.model_executor.execute_model(self._end(ids))
            finally:
                self._on_workers("restore")

    def _is_wanted(self) -> bool:
        """Whether somebody waits to be answered: a request may be among them."""
        queue = getattr(self._core, "input_queue", None)
        return queue is not None and not queue.empty()

    def _make(self, output: Any) -> None:
        """One step, as the engine core makes it."""
        executor = self._core.model_executor
        if executor.execute_model(output) is None:
            executor.sample_tokens(None)
        executor.take_draft_token_ids()

    @property
    def context(self) -> int:
        """Tokens that each request has read."""
        longest: int = self._core.vllm_config.model_config.max_model_len
        k_max: int = self._core.scheduler.num_spec_tokens
        return max(1, min(CONTEXT, longest - 2 * k_max - 4))

    def _begin(self, ids: list[str], k: int) -> Any:
        """All requests come in, with one token of the prompt still to be read."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.core.sched.output import NewRequestData

        scheduler, context = self._core.scheduler, self.context
        ends = context + 2 * (scheduler.num_spec_tokens + 1)
        blocks = [
            [self._null] * -(-ends // group.kv_cache_spec.block_size)
            for group in scheduler.kv_cache_config.kv_cache_groups
        ]
        # Greedy, so that nothing is drawn; ignore_eos, so that nothing ends.
        params = SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)
        prompt = [_TOKEN] * context
        output = self._output(ids, 1, k)
        output.scheduled_new_reqs = [
            NewRequestData(
                req_id=one,
                prompt_token_ids=list(prompt),
                mm_features=[],
                sampling_params=params,
                pooling_params=None,
                block_ids=tuple(list(group) for group in blocks),
                num_computed_tokens=context - 1,
                lora_request=None,
            )
            for one in ids
        ]
        return output

    def _repeat(self, ids: list[str], k: int) -> Any:
        """All requests verify `k` tokens; they have generated one before, whatever they did."""
        from vllm.v1.core.sched.output import CachedRequestData

        cached = CachedRequestData.make_empty()
        cached.req_ids = list(ids)
        cached.num_computed_tokens = [self.context] * len(ids)
        cached.num_output_tokens = [1] * len(ids)
        cached.new_block_ids = [None] * len(ids)
        output = self._output(ids, 1 + k, k)
        output.scheduled_cached_reqs = cached
        if k:
            output.scheduled_spec_decode_tokens = {one: [_TOKEN] * k for one in ids}
        return output

    def _output(self, ids: list[str], tokens: int, k: int) -> Any:
        """The scheduler's word that each of `ids` computes so many tokens."""
        from vllm.v1.core.sched.output import SchedulerOutput

        output = SchedulerOutput.make_empty()
        output.num_scheduled_tokens = dict.fromkeys(ids, tokens)
        output.total_num_scheduled_tokens = tokens * len(ids)
        output.num_spec_tokens_to_schedule = k
        return output

    def _end(self, ids: list[str]) -> Any:
        output = self._output([], 0, 0)
        output.finished_req_ids = set(ids)
        return output

    @property
    def _null(self) -> int:
        """The number of the null block."""
        null: int = self._core.scheduler.kv_cache_manager.block_pool.null_block.block_id
        return null

    def _on_workers(self, word: str, *args: Any) -> None:
        self._core.model_executor.collective_rpc("specdeck_worker", args=(word, *args))
