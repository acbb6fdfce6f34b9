"""What specdeck needs of an engine, without naming any of vLLM's parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from specdeck.engine.plugin.contract import Gap
from specdeck.engine.plugin.cpu_times import CpuTimes
from specdeck.engine.plugin.dummy_steps import DummyRun
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.full_graphs import Reach
from specdeck.engine.protocol.methods import drafts_all_or_none


@dataclass(frozen=True, slots=True)
class Build:
    """What an engine is and will be until it is started again."""

    vllm: str
    model: str
    method: str | None
    """vLLM's name of the speculative method; None without speculation."""
    runner: str
    """`V1`, `V2` or `unknown`."""
    k_max: int
    """0 without speculation."""
    data_parallel: int = 1
    moe: bool = False
    draft_architecture: str | None = None
    """Model type of the draft, for methods with a draft model of their own."""
    parallel_drafting: bool = False
    """Whether all tokens are drafted in one pass."""
    kv_connector: bool = False
    """Whether KV blocks are kept or shared outside of the engine too."""
    gaps: tuple[Gap, ...] = ()
    """Rows of the contract that this vLLM does not have as they are needed."""
    drafter_obeys: bool = True
    """Whether less k is less work for the drafter, after specdeck's wrapping."""
    drafter_captured: frozenset[int] = frozenset()
    """The k's for which all of the drafter's passes are in one CUDA graph; empty where none are."""
    can_skip_drafter: bool = False
    """Whether the drafter can be left out altogether (cold target-only)."""
    asynchronous: bool = False
    """Whether steps are scheduled before the one under way has ended."""
    own_schedule: bool = False
    """Whether the operator configured k by batch size, which a change of k replaces."""
    device: str = "unknown"
    """vLLM's word for it: `cpu`, `cuda`."""
    full_graphs: bool = False
    """Whether steps are run from full CUDA graphs, for which all requests have as many rows."""
    graph_reach: tuple[Reach, ...] = ()
    """How far they reach, by k from 0; empty where there are none, or it cannot be told."""
    kv_kinds: tuple[str, ...] = ()
    """vLLM's names of the kinds of KV cache, by group of layers."""
    stages: int = 1
    """Of a pipeline."""
    seats: int = 0
    """Requests that a step can have; 0 where it cannot be told."""
    step_tokens: int = 0
    """Tokens that a step can have; 0 where it cannot be told."""
    draft_slots: int = 0
    """Rows of a step besides those tokens that the drafter takes for each request."""

    def rows(self, batch: int, k: int) -> int:
        """Of `batch` requests that verify `k` tokens each: buffers have as many as `step_tokens`.

        vLLM's scheduler keeps the drafter's free (max_num_new_slots_for_drafting of its
        SpeculativeConfig); who goes around it writes past the drafter's buffers.
        """
        return batch * (1 + k + self.draft_slots)

    @property
    def drafts_all_or_none(self) -> bool:
        """Whether any k but 0 and k_max would end the engine."""
        fixed = drafts_all_or_none(self.method, parallel_drafting=self.parallel_drafting)
        return fixed and self.k_max > 1


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts since the plugin took hold."""

    step: int
    drafts: int
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    pinned: int = 0
    """Unfinished requests with a k of their own, at this moment."""
    exact_requests: int = 0
    """Requests under exact names so far."""
    exact_tokens: int = 0
    """Tokens generated for them."""
    exact_running: int = 0
    """Unfinished ones of them, at this moment."""
    resting: int = 0
    """Requests that draft nothing for a while, as they accepted nothing."""
    pins_failed: bool = False
    """Whether requests with a k of their own are drafted as all others are, since an error."""


class StepListener(Protocol):
    """Who hears of every step of an engine and of its weights; what it raises never reaches it."""

    def before_step(self) -> None:
        """Called before every scheduling."""

    def after_step(self, step: Step) -> None:
        """Called with every step that was accounted for."""

    def on_blind(self) -> None:
        """Called once when watching has failed: no step is seen any more."""

    def on_new_weights(self) -> None:
        """Called after whatever may have changed the weights in place."""


class Engine(Protocol):
    """One engine core, as specdeck steers it."""

    @property
    def build(self) -> Build:
        """What the engine is."""

    def watch(self, listener: StepListener) -> None:
        """Has every step reported from now on; called once, before traffic."""

    def set_k(self, k: int) -> None:
        """Drafts of `k` tokens from the next step on, at every batch size."""

    def set_table(self, table: Sequence[int]) -> None:
        """Drafts of as many tokens as `table` (engine.policy.table) has for the batch size."""

    def restore_schedule(self) -> None:
        """Puts the configured k by batch size back."""

    def rest_fruitless(self, rounds: int | None) -> None:
        """Has requests draft nothing for a while after so many rounds without an accepted token.

        None has every request draft.
        """

    def schedule(self) -> Sequence[int]:
        """k by number of requests as the scheduler has it; empty where it has none."""

    def scheduled_k(self) -> int:
        """The k that the next step will be told at the present batch size."""

    def skip_drafter(self, on: bool) -> None:
        """Leaves the drafter out of steps with k = 0, or takes it back in."""

    def resync(self) -> int:
        """Drops every KV block so that drafter and target agree; requests preempted by it."""

    def requests(self) -> tuple[int, int]:
        """Requests running and waiting."""

    def weights(self) -> Mapping[str, Any] | None:
        """What the weights are known by since they were changed in place; None as loaded."""

    def tally(self) -> Tally:
        """Counts since the plugin took hold."""

    def cpu_times(self) -> CpuTimes | None:
        """How long its threads waited for a CPU; None where the system does not say."""

    def active_requests(self) -> dict[str, Any]:
        """Requests under way and finished ones as `protocol.requests` has them, but for instance
        and time; raises Refusal as `cohorts` does."""

    def cohorts(self) -> dict[str, Any]:
        """Finished requests by cohort as `plugin.cohorts.read_cohorts` takes them, but for instance
        and time; raises Refusal where this vLLM does not let requests be told apart."""

    def is_idle(self) -> bool:
        """Whether there is nothing to schedule, and nothing left of what was."""

    def make_dummy_steps(self, batch: int, k: int, steps: int) -> DummyRun:
        """Makes steps of no request, as many or fewer; only where `calibration` is available and
        while it is idle."""

    def steps(self, since: int, most: int) -> list[Step]:
        """The first `most` of the remembered steps after number `since`, oldest first."""
