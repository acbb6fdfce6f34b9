"""vLLM's scheduler and engine core, behind specdeck's contract with an engine.

The scheduler reads `dynamic_sd_lookup[batch size]` once per step and tells the workers
that many draft tokens (vllm/v1/core/sched/scheduler.py). Writing that list from a
utility method that vLLM calls on the engine core's main thread between steps is a
complete control of k for the plain and the asynchronous scheduler alike.

Without a list vLLM drafts k_max tokens, and gives a request that comes in with one token
to compute as many rows as those that decode, so that the step keeps its full CUDA graph.
So there is no list while k is k_max at every batch size: an engine with the plugin and
nothing changed schedules as one without it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from specdeck.engine.plugin.contract import Build, StepListener, Tally
from specdeck.engine.plugin.recorder import Recorder
from specdeck.engine.plugin.request_pins import Pins
from specdeck.engine.plugin.weights import WeightWatch
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import bucket, everywhere
from specdeck.engine.protocol.messages import TIERS_VARIABLE

_NEEDED = (
    "dynamic_sd_lookup",
    "num_spec_tokens",
    "schedule",
    "update_from_output",
    "make_spec_decoding_stats",
)
"""What specdeck uses of a scheduler; a version without one of them is named, not patched."""


class CoreEngine:
    """One vLLM engine core, as `contract.Engine`."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._scheduler = core.scheduler
        missing = tuple(name for name in _NEEDED if not hasattr(core.scheduler, name))
        drafters = [] if missing else self._on_workers("install")
        k_max = getattr(core.scheduler, "num_spec_tokens", 0)
        self._pins = Pins(core.scheduler, k_max, on_presence=self._place_lookup)
        self._build = _build(core.vllm_config, missing, drafters, can_pin=self._pins.available)
        self._recorder: Recorder | None = None
        """None where nobody watches, or this vLLM's scheduler has not what specdeck needs."""
        held = getattr(core.scheduler, "dynamic_sd_lookup", None)
        self._weights: WeightWatch | None = None
        """None until somebody watches."""
        self._buckets: list[int] = []
        self._configured = None if held is None else list(held)
        self._lookup: list[int] = [] if held is None else held
        """k by batch size; filled in place, since parts of vLLM may hold it."""
        self._at_most = False
        """Whether every batch size has k_max, for which vLLM requires no list."""

    @property
    def build(self) -> Build:
        """What the engine is until it is started again."""
        return self._build

    def watch(self, listener: StepListener) -> None:
        """Has every step reported from now on, where this vLLM's scheduler can be watched."""
        if not self._build.missing:
            settle = 2 if self._build.asynchronous else 1
            self._recorder = Recorder(self._scheduler, self._build.k_max, listener, settle=settle)
        self._weights = WeightWatch(self._core, listener.on_new_weights)

    def weights(self) -> Mapping[str, Any] | None:
        """What the weights are known by since they were changed in place."""
        return self._weights.facts() if self._weights else None

    def set_k(self, k: int) -> None:
        """Writes k for every batch size."""
        self.set_table(everywhere(k).table)

    def set_table(self, table: Sequence[int]) -> None:
        """Writes the k of every batch size from a policy's table."""
        size = len(self._lookup) or self._core.vllm_config.scheduler_config.max_num_seqs + 1
        self._lookup[:] = fill_lookup(table, self._places(size))
        self._at_most = table.count(self._build.k_max) == len(table)
        self._place_lookup()

    def _place_lookup(self) -> None:
        """Gives the scheduler the list, or none where it is to do as it does by itself.

        A pinned request verifies no rows of vLLM's making, so while there is one the list
        stays; the batch has not the shape of a full graph then anyhow.
        """
        absent = self._at_most and not self._pins.has_any
        self._scheduler.dynamic_sd_lookup = None if absent else self._lookup

    def _places(self, entries: int) -> list[int]:
        """The bucket of each batch size, worked out once: a policy may move k at every step."""
        if len(self._buckets) != entries:
            self._buckets = [bucket(size) for size in range(entries)]
        return self._buckets

    def restore_schedule(self) -> None:
        """Writes the k by batch size that the engine was started with."""
        if self._configured is not None:
            self._lookup[:] = self._configured
            self._at_most = False
            self._place_lookup()

    def schedule(self) -> Sequence[int]:
        """What the scheduler looks k up in, or the list that would say the same."""
        lookup: Sequence[int] | None = getattr(self._scheduler, "dynamic_sd_lookup", None)
        return lookup or (self._lookup if self._at_most else ())

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
        recorder, none, pins = self._recorder, (0,) * self._build.k_max, self._pins
        counts = (len(pins), pins.exact_requests, pins.exact_tokens, pins.exact_running)
        if recorder is None:
            return Tally(0, 0, none, none, *counts)
        drafted, accepted = tuple(recorder.drafted), tuple(recorder.accepted)
        return Tally(recorder.scheduled, recorder.drafts, drafted, accepted, *counts)

    def steps(self, since: int, most: int) -> list[Step]:
        """The first `most` of the remembered steps after number `since`, oldest first."""
        return self._recorder.after(since, most) if self._recorder else []

    def _on_workers(self, command: str, *args: Any) -> list[Any]:
        answers = self._core.model_executor.collective_rpc("specdeck_worker", args=(command, *args))
        return list(answers)


def fill_lookup(table: Sequence[int], places: Sequence[int]) -> list[int]:
    """k by batch size, of which `places` are the buckets.

    >>> fill_lookup([5, 4, 3], [0, 0, 1, 2]), fill_lookup([2, 2, 2], [0, 0, 1, 2])
    ([5, 5, 4, 3], [2, 2, 2, 2])
    """
    first = table[0]
    if table.count(first) == len(table):
        return [first] * len(places)
    return [table[place] for place in places]


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
        parallel_drafting=bool(getattr(spec, "parallel_drafting", False)),
        kv_connector=getattr(config, "kv_transfer_config", None) is not None,
        missing=missing,
        drafter_obeys=all(drafter["obeys"] for drafter in drafters),
        drafter_captured=frozenset[int]().union(
            *(drafter.get("captured") or () for drafter in drafters)
        ),
        can_skip_drafter=bool(drafters) and all(drafter["skippable"] for drafter in drafters),
        can_pin=can_pin,
        asynchronous=bool(getattr(config.scheduler_config, "async_scheduling", False)),
        own_schedule=bool(getattr(spec, "num_speculative_tokens_per_batch_size", None))
        and TIERS_VARIABLE not in os.environ,
        full_graphs=_has_full_graphs(config),
    )


def _has_full_graphs(config: Any) -> bool:
    mode = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    return mode is not None and bool(mode.has_full_cudagraphs())


def _runner(config: Any) -> str:
    v2 = getattr(config, "use_v2_model_runner", None)
    return "unknown" if v2 is None else "V2" if v2 else "V1"


def _served_name(model: Any) -> str:
    name = model.served_model_name
    return str(name[0] if isinstance(name, list) else name or model.model)
