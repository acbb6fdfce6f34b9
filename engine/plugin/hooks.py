"""vLLM's scheduler and engine core, behind the controller's seam.

The scheduler reads `dynamic_sd_lookup[batch size]` once per step and tells the workers
that many draft tokens (vllm/v1/core/sched/scheduler.py). Writing that list in place,
from a utility method that vLLM calls on the engine core's main thread between steps, is
a complete control of k for the plain and the asynchronous scheduler alike.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from specdeck.engine.control.protocol import TIERS_VARIABLE
from specdeck.engine.plugin.pins import Pins
from specdeck.engine.plugin.seam import Build, Tally

_REMEMBERED_STEPS = 4096

_NEEDED = (
    "dynamic_sd_lookup",
    "num_spec_tokens",
    "schedule",
    "update_from_output",
    "make_spec_decoding_stats",
)
"""What specdeck uses of a scheduler; a version without one of them is named, not patched."""


class CoreEngine:
    """One vLLM engine core, seen through `plugin.seam.Engine`."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._scheduler = core.scheduler
        self.before_step: Callable[[], None] = lambda: None
        """Called before every scheduling; set by whoever holds the control state."""
        missing = tuple(name for name in _NEEDED if not hasattr(core.scheduler, name))
        drafters = [] if missing else self._on_workers("install")
        k_max = getattr(core.scheduler, "num_spec_tokens", 0)
        self._pins = Pins(core.scheduler, k_max)
        self._build = _build(core.vllm_config, missing, drafters, can_pin=self._pins.available)
        self._ring: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED_STEPS)
        self._scheduled = 0
        self._outstanding: dict[int, int] = {}
        self._drafts = 0
        self._drafted = [0] * self._build.k_max
        self._accepted = [0] * self._build.k_max
        self._this_step = [0, 0, 0]
        if not missing:
            self._wrap_scheduler()

    @property
    def build(self) -> Build:
        """What the engine is until it is started again."""
        return self._build

    def set_k(self, k: int) -> None:
        """Writes k for every batch size.

        The list is filled in place where there is one, since parts of vLLM may hold it.
        """
        lookup = self._scheduler.dynamic_sd_lookup
        if lookup is None:
            size = self._core.vllm_config.scheduler_config.max_num_seqs + 1
            self._scheduler.dynamic_sd_lookup = [k] * size
        else:
            lookup[:] = [k] * len(lookup)

    def scheduled_k(self) -> int:
        """The k for the present number of running requests."""
        lookup = getattr(self._scheduler, "dynamic_sd_lookup", None)
        if not lookup:
            return self._build.k_max
        return int(lookup[min(max(len(self._scheduler.running), 1), len(lookup) - 1)])

    def skip_drafter(self, on: bool) -> None:
        """Tells every worker; all ranks must agree."""
        self._on_workers("skip", on)

    def resync(self) -> int:
        """Preempts what runs and empties the prefix cache; the number preempted."""
        running = len(self._scheduler.running)
        self._core.reset_prefix_cache(True)
        return running

    def requests(self) -> tuple[int, int]:
        """Requests running and waiting."""
        running, waiting = self._scheduler.get_request_counts()
        return int(running), int(waiting)

    def tally(self) -> Tally:
        """Counts since the plugin took hold."""
        return Tally(
            self._scheduled,
            self._drafts,
            tuple(self._drafted),
            tuple(self._accepted),
            len(self._pins),
        )

    def steps(self, since: int) -> list[dict[str, Any]]:
        """The remembered steps after number `since`, oldest first."""
        return [step for step in self._ring if step["step"] > since]

    def _on_workers(self, command: str, *args: Any) -> list[Any]:
        answers = self._core.model_executor.collective_rpc("specdeck_worker", args=(command, *args))
        return list(answers)

    def _wrap_scheduler(self) -> None:
        scheduler = self._scheduler
        for name in ("schedule", "update_from_output", "make_spec_decoding_stats"):
            original = getattr(scheduler, name)
            wrapped = functools.wraps(original)(getattr(self, f"_{name}")(original))
            setattr(scheduler, name, wrapped)

    def _schedule(self, schedule: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.before_step()
            output = schedule(*args, **kwargs)
            self._scheduled += 1
            if len(self._outstanding) > 64:  # steps that vLLM dropped without an update
                self._outstanding.clear()
            self._outstanding[id(output)] = self._scheduled
            return output

        return wrapped

    def _update_from_output(self, update: Any) -> Any:
        def wrapped(output: Any, *args: Any, **kwargs: Any) -> Any:
            self._this_step = [0, 0, 0]
            outputs = update(output, *args, **kwargs)
            step = self._outstanding.pop(id(output), None)
            if step is not None and output.total_num_scheduled_tokens:
                drafts, drafted, accepted = self._this_step
                self._ring.append(
                    {
                        "step": step,
                        "t": monotonic(),
                        "requests": len(output.num_scheduled_tokens),
                        "tokens": output.total_num_scheduled_tokens,
                        "k": output.num_spec_tokens_to_schedule,
                        "drafts": drafts,
                        "drafted": drafted,
                        "accepted": accepted,
                    }
                )
            return outputs

        return wrapped

    def _make_spec_decoding_stats(self, make: Any) -> Any:
        signature = inspect.signature(make)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            call = signature.bind(*args, **kwargs).arguments
            drafted = call["num_draft_tokens"]
            invalid = call.get("num_invalid_spec_tokens") or {}
            drafted -= invalid.get(call.get("request_id"), 0)
            self._count(drafted, call["num_accepted_tokens"])
            return make(*args, **kwargs)

        return wrapped

    def _count(self, drafted: int, accepted: int) -> None:
        if drafted <= 0:
            return
        self._drafts += 1
        for position in range(min(drafted, len(self._drafted))):
            self._drafted[position] += 1
        for position in range(min(accepted, len(self._accepted))):
            self._accepted[position] += 1
        step = self._this_step
        step[0] += 1
        step[1] += drafted
        step[2] += accepted


def _build(
    config: Any, missing: tuple[str, ...], drafters: list[dict[str, Any]], *, can_pin: bool
) -> Build:
    from vllm import __version__ as version

    spec = config.speculative_config
    draft = getattr(spec, "draft_model_config", None)
    parallel = config.parallel_config
    return Build(
        vllm=version,
        model=_served_name(config.model_config),
        method=spec.method if spec else None,
        runner=_runner(config),
        k_max=(spec.num_speculative_tokens or 0) if spec else 0,
        data_parallel=parallel.data_parallel_size,
        moe=bool(getattr(parallel, "is_moe_model", None) or config.model_config.is_moe),
        draft_architecture=getattr(getattr(draft, "hf_config", None), "model_type", None),
        missing=missing,
        drafter_obeys=all(drafter["obeys"] for drafter in drafters),
        can_skip_drafter=bool(drafters) and all(drafter["skippable"] for drafter in drafters),
        can_pin=can_pin,
        own_schedule=bool(getattr(spec, "num_speculative_tokens_per_batch_size", None))
        and TIERS_VARIABLE not in os.environ,
    )


def _runner(config: Any) -> str:
    v2 = getattr(config, "use_v2_model_runner", None)
    return "unknown" if v2 is None else "V2" if v2 else "V1"


def _served_name(model: Any) -> str:
    name = model.served_model_name
    return str(name[0] if isinstance(name, list) else name or model.model)
