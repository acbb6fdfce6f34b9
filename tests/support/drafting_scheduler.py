"""A scheduler that does nothing but decode, and accounts for drafts as vLLM does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

_REASON = SimpleNamespace(name="STOP")


class DraftingScheduler:
    """Runs every request in every step; what comes out of one is told to `finish_step`."""

    def __init__(self, k_max: int, new_stats: Callable[[int], Any]) -> None:
        """`new_stats` makes what vLLM sums a step up in."""
        self.k_max = k_max
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.finished_req_ids: set[str] = set()
        self.dynamic_sd_lookup = [k_max] * 2049
        self.log_stats = True
        self._new_stats = new_stats
        self._ready: dict[str, list[int]] = {}
        """Drafts that the next step verifies."""

    def add_request(self, request: Any) -> None:
        """Takes one, which runs from the next step on."""
        self.requests[request.request_id] = request
        self.running.append(request)

    def update_draft_token_ids(self, drafts: Any) -> None:
        """Where pins cut drafts."""

    def schedule(self) -> Any:
        """A step of all that run; a request's first step has no draft."""
        k = self.dynamic_sd_lookup[len(self.running)]
        ids = [request.request_id for request in self.running]
        ready, self._ready = self._ready, dict.fromkeys(ids, [0] * k) if k else {}
        drafts = {name: ready[name] for name in ids if name in ready}
        counts = {name: 1 + len(drafts.get(name, ())) for name in ids}
        return SimpleNamespace(
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=sum(counts.values()),
            num_spec_tokens_to_schedule=k,
            scheduled_spec_decode_tokens=drafts,
            num_invalid_spec_tokens=None,
        )

    def finish_step(self, output: Any, accepted: Sequence[int]) -> Any:
        """Accounts for a step in which each request had so many tokens accepted, as far as its
        draft goes."""
        drafts = output.scheduled_spec_decode_tokens
        ids = list(output.num_scheduled_tokens)
        sampled = [
            [1] * (1 + min(number, len(drafts.get(name, ()))))
            for name, number in zip(ids, accepted, strict=True)
        ]
        return self.update_from_output(
            output, SimpleNamespace(req_ids=ids, sampled_token_ids=sampled)
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """As vLLM does: what has ended counts no more, and a request's end cuts what came out."""
        made, stats = [], None
        index = {name: at for at, name in enumerate(model_runner_output.req_ids)}
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(name)
            if request is None:
                continue
            tokens = model_runner_output.sampled_token_ids[index[name]]
            draft = scheduler_output.scheduled_spec_decode_tokens.get(name)
            if draft and tokens:
                stats = self.make_spec_decoding_stats(
                    stats,
                    num_draft_tokens=len(draft),
                    num_accepted_tokens=len(tokens) - 1,
                    num_invalid_spec_tokens=scheduler_output.num_invalid_spec_tokens,
                    request_id=name,
                )
            left = request.left
            if left is not None:
                del tokens[left:]
                request.left = left - len(tokens)
            made.append(SimpleNamespace(request_id=name, new_token_ids=tokens))
            if left is not None and not request.left:
                self.free(request)
        self.make_stats(stats)
        found = SimpleNamespace(spec_decoding_stats=stats) if self.log_stats else None
        return {0: SimpleNamespace(outputs=made, scheduler_stats=found)}

    def free(self, request: Any) -> None:
        """Ends a request, as vLLM does when it is done or aborted."""
        self.running = [one for one in self.running if one is not request]
        self._free_request(request)

    def _free_request(self, request: Any) -> None:
        del self.requests[request.request_id]

    def make_stats(self, spec_decoding_stats: Any = None) -> None:
        """Once a step, with the sums over its drafts."""

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: Any,
        request_id: str,
    ) -> Any:
        """Once for each draft."""
        if not self.log_stats or not num_draft_tokens:
            return None
        stats = spec_decoding_stats or self._new_stats(self.k_max)
        if num_invalid_spec_tokens:
            num_draft_tokens -= num_invalid_spec_tokens.get(request_id, 0)
        stats.observe_draft(num_draft_tokens, num_accepted_tokens)
        return stats


def make_request(number: int, *, left: int | None = None, **told: Any) -> Any:
    """A request as vLLM has it, which ends after `left` tokens; None for no end."""
    usual: dict[str, Any] = {
        "request_id": f"cmpl-{number:032x}",
        "left": left,
        "spec_token_ids": [],
        "sampling_params": SimpleNamespace(
            temperature=0.0,
            extra_args=None,
            structured_outputs=None,
            allowed_token_ids=None,
            logit_bias=None,
            bad_words=None,
            frequency_penalty=0.0,
            presence_penalty=0.0,
            repetition_penalty=1.0,
        ),
        "lora_request": None,
        "num_prompt_tokens": 900,
        "num_output_tokens": 150,
        "num_preemptions": 0,
        "arrival_time": 0.0,
        "prefill_stats": SimpleNamespace(num_prompt_tokens=900, num_cached_tokens=512),
        "get_finished_reason": lambda: _REASON,
        "is_finished": lambda: False,
        "status": SimpleNamespace(name="RUNNING"),
    }
    return SimpleNamespace(**usual | told)
