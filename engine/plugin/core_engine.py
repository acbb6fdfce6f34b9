"""vLLM's scheduler and engine core, as the engine that specdeck steers.

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
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from specdeck.engine.plugin.contract import BY_KEY, Gap, by_loss, describe_gaps
from specdeck.engine.plugin.cpu_times import CpuTimes, CpuWatch
from specdeck.engine.plugin.dummy_steps import DummyRun, DummySteps
from specdeck.engine.plugin.engine import Build, StepListener, Tally
from specdeck.engine.plugin.graph_reach import graph_reach
from specdeck.engine.plugin.guards import DisableOnError
from specdeck.engine.plugin.lookup import Lookup
from specdeck.engine.plugin.recorder import Recorder
from specdeck.engine.plugin.reply import inability
from specdeck.engine.plugin.request_counts import RequestCounts
from specdeck.engine.plugin.request_pins import Pins
from specdeck.engine.plugin.take_hold import find_core_gaps
from specdeck.engine.plugin.weights import WeightWatch
from specdeck.engine.policy.fruitless import EVERY, Fruitless
from specdeck.engine.policy.step import Step
from specdeck.engine.policy.table import everywhere
from specdeck.engine.protocol.full_graphs import Reach
from specdeck.engine.protocol.messages import TIERS_VARIABLE, Capability
from specdeck.engine.protocol.vllm_versions import REMEDY

_DUMMY_BUDGET_S = 1.0
"""What dummy steps of one shape may take, but for the last one."""
_LOOKS_TO_FORGET = 16
"""Looks at drafts after which requests that have ended are let go of."""


class CoreEngine:
    """One vLLM engine core, as `engine.Engine`."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._scheduler: Any = getattr(core, "scheduler", None)
        gaps = find_core_gaps(core)
        drafters = [] if "live_k" in by_loss(gaps) else self._on_workers("install")
        self._cpu = CpuWatch([one["pid"] for one in drafters if isinstance(one.get("pid"), int)])
        k_max = getattr(self._scheduler, "num_spec_tokens", 0)
        self._pins = Pins(self._scheduler, k_max, on_presence=self._place_lookup)
        # Below the recorder's, which takes its own away again.
        self._counts = RequestCounts(self._scheduler, k_max)
        self._build = _build(core, gaps, drafters)
        self._fruitless: Fruitless | None = None
        """None where every request drafts."""
        self._looks = 0
        self._rest_guard = DisableOnError("resting requests", on_failure=self._end_rests)
        self._recorder: Recorder | None = None
        """None where nobody watches, or this vLLM's scheduler has not what specdeck needs."""
        held = getattr(self._scheduler, "dynamic_sd_lookup", None)
        self._weights: WeightWatch | None = None
        """None until somebody watches."""
        self._configured = None if held is None else list(held)
        self._lookup = Lookup([] if held is None else held)
        """k by batch size; filled in place, since parts of vLLM may hold it."""
        self._at_most = False
        """Whether every batch size has k_max, for which vLLM requires no list."""

    @property
    def build(self) -> Build:
        """What the engine is until it is started again."""
        return self._build

    def watch(self, listener: StepListener) -> None:
        """Has every step reported from now on, where this vLLM's scheduler can be watched."""
        if "live_k" not in by_loss(self._build.gaps):
            # As many steps as vLLM has under way at once: more with stages of a pipeline.
            batches = getattr(self._core.vllm_config, "max_concurrent_batches", 1)
            settle = max(2 if self._build.asynchronous else 1, batches)
            self._recorder = Recorder(
                self._scheduler,
                self._build.k_max,
                listener,
                settle=settle,
                pins=self._pins,
            )
            self._listen_for_drafts()
        self._weights = WeightWatch(self._core, listener.on_new_weights)

    def weights(self) -> Mapping[str, Any] | None:
        """What the weights are known by since they were changed in place."""
        return self._weights.facts() if self._weights else None

    def set_k(self, k: int) -> None:
        """Writes k for every batch size."""
        self.set_table(everywhere(k).table)

    def set_table(self, table: Sequence[int]) -> None:
        """Writes the k of every batch size from a policy's table."""
        if not len(self._lookup):
            self._lookup = Lookup([0] * (self._core.vllm_config.scheduler_config.max_num_seqs + 1))
        self._lookup.write(table)
        self._at_most = table.count(self._build.k_max) == len(table)
        self._place_lookup()

    def _place_lookup(self) -> None:
        """Gives the scheduler the list, or none where it is to do as it does by itself.

        A pinned request verifies no rows of vLLM's making, so while there is one the list
        stays; the batch has not the shape of a full graph then anyhow. An engine whose k nobody
        can tell has no list, and an empty one would end it at its next step.
        """
        if not self._lookup:
            return
        absent = self._at_most and not self._pins.has_any
        self._scheduler.dynamic_sd_lookup = None if absent else self._lookup.entries

    def restore_schedule(self) -> None:
        """Writes the k by batch size that the engine was started with."""
        if self._configured is not None:
            self._lookup.restore(self._configured)
            self._at_most = False
            self._place_lookup()

    def rest_fruitless(self, rounds: int | None) -> None:
        """Looks at some of the steps; a request that rests is cut as a pinned one is."""
        looks = None if rounds is None else max(1, rounds // EVERY)
        if looks == (self._fruitless.looks if self._fruitless else None):
            return
        self._fruitless = None if looks is None else Fruitless(looks)
        self._pins.rest(())
        self._listen_for_drafts()

    def _listen_for_drafts(self) -> None:
        if self._recorder is not None:
            look = partial(self._rest_guard, self._look_at_drafts)
            self._recorder.on_drafts = look if self._fruitless else None

    def _end_rests(self) -> None:
        """Every request drafts again where looking at them has failed."""
        self._fruitless = None
        self._pins.rest(())

    def _look_at_drafts(self, drafted: Collection[str], several: Collection[str]) -> None:
        found = self._fruitless
        if found is None:
            return
        moved = found.look(drafted, several)
        self._looks += 1
        if not self._looks % _LOOKS_TO_FORGET:
            before = len(found.resting)
            found.keep(self._scheduler.requests)
            moved = moved or len(found.resting) != before
        if moved:
            self._pins.rest(found.resting)

    def schedule(self) -> Sequence[int]:
        """What the scheduler looks k up in, or the list that would say the same."""
        lookup: Sequence[int] | None = getattr(self._scheduler, "dynamic_sd_lookup", None)
        return lookup or (self._lookup.entries if self._at_most else ())

    def scheduled_k(self) -> int:
        """The k for the present number of running requests."""
        lookup = getattr(self._scheduler, "dynamic_sd_lookup", None)
        if not lookup:
            return self._build.k_max
        running = len(getattr(self._scheduler, "running", ()))
        return int(lookup[min(max(running, 1), len(lookup) - 1)])

    def skip_drafter(self, on: bool) -> None:
        """Tells every worker; all ranks must agree."""
        self._on_workers("skip", on)

    def resync(self) -> int:
        """Preempts what runs and empties the prefix cache; the number preempted."""
        running = len(self._scheduler.running)
        self._core.reset_prefix_cache(True)
        return running

    def requests(self) -> tuple[int, int]:
        """Requests running and waiting; none where this vLLM cannot be asked."""
        count = getattr(self._scheduler, "get_request_counts", None)
        running, waiting = count() if count else (0, 0)
        return int(running), int(waiting)

    def is_idle(self) -> bool:
        """No request, and no finished one that the workers are still to be told of."""
        return self.requests() == (0, 0) and not self._scheduler.finished_req_ids

    def make_dummy_steps(self, batch: int, k: int, steps: int) -> DummyRun:
        """The scheduler is not asked, so that nothing of them is scheduled or counted."""
        return DummySteps(self._core).run(batch, k, steps, budget_s=_DUMMY_BUDGET_S)

    def tally(self) -> Tally:
        """Counts since the plugin took hold."""
        recorder, none, pins = self._recorder, (0,) * self._build.k_max, self._pins
        exact = (pins.exact_requests, pins.exact_tokens, pins.exact_running)
        counts = (len(pins), *exact, pins.resting, pins.failed)
        if recorder is None:
            return Tally(0, 0, none, none, *counts)
        drafted, accepted = tuple(recorder.drafted), tuple(recorder.accepted)
        return Tally(recorder.scheduled, recorder.drafts, drafted, accepted, *counts)

    def cohorts(self) -> dict[str, Any]:
        """Finished requests by cohort, in few words, and vLLM's own sums at this moment."""
        counts, tally = self._counts, self.tally()
        if not counts.available or counts.failed:
            raise inability(self._no_cohorts())
        return {
            "k_max": counts.k_max,
            "cells": counts.cells.cells(),
            "folded": counts.cells.list_folded(),
            "unfinished": counts.sum_unfinished(),
            "drafts": tally.drafts,
            "drafted_per_position": tally.drafted_per_position,
            "accepted_per_position": tally.accepted_per_position,
        }

    def cpu_times(self) -> CpuTimes | None:
        """How long threads waited for a CPU; None where Linux does not say."""
        return self._cpu.read()

    def active_requests(self) -> dict[str, Any]:
        """Requests under way and those that ended last, as `protocol.requests` has them."""
        counts = self._counts
        if not counts.available or counts.failed:
            raise inability(self._no_cohorts())
        running, waiting = self.requests()
        return {
            "k": self.scheduled_k(),
            "running": running,
            "waiting": waiting,
            "active": counts.active(),
            "finished": counts.list_finished(),
        }

    def _no_cohorts(self) -> Capability:
        name, counts = "cohorts", self._counts
        if counts.failed:
            why = "specdeck failed at telling requests apart; the engine's log says why"
            return Capability(name, False, why, "restart the engine")
        lost = describe_gaps(counts.gaps, self._build.vllm) if counts.gaps else "no scheduler"
        return Capability(name, False, lost, REMEDY)

    def steps(self, since: int, most: int) -> list[Step]:
        """The first `most` of the remembered steps after number `since`, oldest first."""
        return self._recorder.after(since, most) if self._recorder else []

    def _on_workers(self, command: str, *args: Any) -> list[Any]:
        answers = self._core.model_executor.collective_rpc("specdeck_worker", args=(command, *args))
        return list(answers)


def _build(core: Any, gaps: tuple[Gap, ...], drafters: list[dict[str, Any]]) -> Build:
    """What is not there is said by `gaps`, and so need not be right here."""
    from vllm import __version__ as version

    config, scheduler = core.vllm_config, getattr(core, "scheduler", None)
    seats = getattr(config, "scheduler_config", None)
    spec = getattr(config, "speculative_config", None)
    model = getattr(config, "model_config", None)
    draft = getattr(spec, "draft_model_config", None)
    parallel = getattr(config, "parallel_config", None)
    in_workers = {
        (key, tuple(missing)) for drafter in drafters for key, missing in drafter.get("gaps", ())
    }
    # Of the stages of a pipeline only the last one has a drafter.
    skippable = [drafter["skippable"] for drafter in drafters if drafter["drafter"] is not None]
    return Build(
        vllm=version,
        model=_served_name(model),
        method=getattr(spec, "method", None),
        runner=_runner(config),
        k_max=getattr(spec, "num_speculative_tokens", None) or 0,
        data_parallel=getattr(parallel, "data_parallel_size", 1),
        moe=bool(getattr(parallel, "is_moe_model", None) or getattr(model, "is_moe", False)),
        draft_architecture=getattr(getattr(draft, "hf_config", None), "model_type", None),
        parallel_drafting=bool(getattr(spec, "parallel_drafting", False)),
        kv_connector=getattr(config, "kv_transfer_config", None) is not None,
        gaps=(*gaps, *(Gap(BY_KEY[key], missing) for key, missing in sorted(in_workers))),
        drafter_obeys=all(drafter["obeys"] for drafter in drafters),
        drafter_captured=frozenset[int]().union(
            *(drafter.get("captured") or () for drafter in drafters)
        ),
        can_skip_drafter=bool(skippable) and all(skippable),
        asynchronous=bool(
            getattr(getattr(config, "scheduler_config", None), "async_scheduling", False)
        ),
        own_schedule=bool(getattr(spec, "num_speculative_tokens_per_batch_size", None))
        and TIERS_VARIABLE not in os.environ,
        device=str(getattr(getattr(config, "device_config", None), "device_type", "unknown")),
        full_graphs=_has_full_graphs(config),
        graph_reach=_find_reach(config, spec),
        kv_kinds=_find_kv_kinds(scheduler),
        stages=getattr(parallel, "pipeline_parallel_size", 1),
        seats=getattr(seats, "max_num_seqs", 0),
        step_tokens=getattr(seats, "max_num_batched_tokens", None) or 0,
        draft_slots=_count_draft_slots(spec),
    )


def _count_draft_slots(spec: Any) -> int:
    """Rows that the drafter takes for each request; the most of any method where vLLM is silent."""
    if spec is None:
        return 0
    found = getattr(spec, "max_num_new_slots_for_drafting", None)
    return getattr(spec, "num_speculative_tokens", None) or 0 if found is None else int(found)


def _find_kv_kinds(scheduler: Any) -> tuple[str, ...]:
    caches = getattr(scheduler, "kv_cache_config", None)
    groups = getattr(caches, "kv_cache_groups", None) or ()
    return tuple(type(group.kv_cache_spec).__name__ for group in groups)


def _has_full_graphs(config: Any) -> bool:
    mode = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    return mode is not None and bool(mode.has_full_cudagraphs())


def _find_reach(config: Any, spec: Any) -> tuple[Reach, ...]:
    """By k; empty unless steps of one k each have full graphs of their own."""
    compilation = getattr(config, "compilation_config", None)
    mode = getattr(compilation, "cudagraph_mode", None)
    captured = getattr(compilation, "cudagraph_capture_sizes", None)
    seats = getattr(getattr(config, "scheduler_config", None), "max_num_seqs", None)
    k_max = getattr(spec, "num_speculative_tokens", None)
    apart = getattr(mode, "separate_routine", None)
    if not (captured and seats and k_max and apart and apart() and _has_full_graphs(config)):
        return ()
    # The configuration keeps the tiers that were given for the graphs alone.
    tiers = getattr(spec, "num_speculative_tokens_per_batch_size", None)
    depths = {min(int(k), k_max) for *_, k in tiers} if tiers else {k_max}
    return graph_reach(captured, k_max=k_max, seats=seats, depths=depths)


def _runner(config: Any) -> str:
    v2 = getattr(config, "use_v2_model_runner", None)
    return "unknown" if v2 is None else "V2" if v2 else "V1"


def _served_name(model: Any) -> str:
    name = getattr(model, "served_model_name", None)
    return str(name[0] if isinstance(name, list) else name or getattr(model, "model", ""))
