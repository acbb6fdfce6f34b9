"""A check followed to its end, for tests and benchmarks that want what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from specdeck.engine.divergence.sampled import DrawProgress
from specdeck.engine.operations.check import (
    CheckEvent,
    CheckResult,
    SampledEvent,
    SampledResult,
    run_check,
    run_sampled_check,
)

if TYPE_CHECKING:
    from specdeck.engine.divergence.prompts import PromptSet
    from specdeck.engine.divergence.sampled import Sampling
    from specdeck.engine.operations.check import ArmPair
    from specdeck.engine.store.checks import Checks


async def finish_check(
    pair: ArmPair,
    prompts: PromptSet,
    store: Checks,
    on_event: Callable[[CheckEvent], None] = lambda event: None,
) -> CheckResult:
    """The result of a whole check; `on_event` hears of everything as it comes."""
    async for event in run_check(pair, prompts, store):
        on_event(event)
        if isinstance(event, CheckResult):
            return event
    raise AssertionError("a check ends with its result")


async def finish_sampled_check(
    pair: ArmPair,
    prompts: PromptSet,
    sampling: Sampling,
    store: Checks,
    on_progress: Callable[[int], None] = lambda done: None,
) -> SampledResult:
    """The result of a whole check of distributions."""
    event: SampledEvent
    async for event in run_sampled_check(pair, prompts, sampling, store):
        if isinstance(event, DrawProgress):
            on_progress(event.done)
        if isinstance(event, SampledResult):
            return event
    raise AssertionError("a check ends with its result")
