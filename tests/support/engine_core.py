"""An engine core as the plugin sees it, with steps made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.cpu_times import CpuTimes
from specdeck.engine.plugin.dummy_steps import DummyRun
from specdeck.engine.plugin.engine import Build, StepListener, Tally
from specdeck.engine.plugin.fingerprint import Identity
from specdeck.engine.plugin.recorder import StepOrder
from specdeck.engine.policy.step import Step

BUILD = Build(
    vllm="0.32.0", model="demo", method="draft_model", runner="V1", k_max=5, can_skip_drafter=True
)


@dataclass
class FakeCore:
    """Remembers what it was told, in order, and plays steps to whoever watches."""

    build: Build = BUILD
    calls: list[tuple[str, Any]] = field(default_factory=list)
    k: int = 5
    listener: StepListener | None = None
    played: int = 0
    """Steps that `play` has made."""
    counts: Tally = field(default_factory=lambda: Tally(7, 0, (0,) * 5, (0,) * 5))
    busy: tuple[int, int] = (3, 1)
    """Requests running and waiting."""
    new_weights: Mapping[str, Any] | None = None
    broken: bool = False
    """Whether the drafter cannot be told to leave a step out."""
    rest_rounds: int | None = None
    cpu: CpuTimes | None = None
    dummies: list[tuple[int, int, int]] = field(default_factory=list)
    """Batch size, k and number of the dummy steps that were asked for."""
    dummy_s: Callable[[int, int], float] = lambda batch, k: 0.02 + 0.001 * k + 0.0005 * batch
    """What one of them takes."""
    skips: list[bool] = field(default_factory=list)
    """What the drafter was asked for, in vain too."""
    _order: StepOrder = field(default_factory=StepOrder)

    def watch(self, listener: StepListener) -> None:
        """Plays steps to `listener` from now on."""
        self.listener = listener

    def set_k(self, k: int) -> None:
        """As in the contract."""
        self.calls.append(("k", k))
        self.k = k

    def set_table(self, table: Sequence[int]) -> None:
        """As in the contract."""
        self.calls.append(("table", tuple(table[:2])))
        self.k = table[0]

    def restore_schedule(self) -> None:
        """As in the contract."""
        self.calls.append(("schedule", None))

    def rest_fruitless(self, rounds: int | None) -> None:
        """As in the contract."""
        self.rest_rounds = rounds

    def schedule(self) -> Sequence[int]:
        """As in the contract."""
        return [self.k] * 9

    def scheduled_k(self) -> int:
        """As in the contract."""
        return self.k

    def skip_drafter(self, on: bool) -> None:
        """As in the contract; raises RuntimeError while it is broken."""
        self.skips.append(on)
        if self.broken:
            raise RuntimeError("a worker is gone")
        self.calls.append(("skip", on))

    def resync(self) -> int:
        """As in the contract."""
        self.calls.append(("resync", None))
        return 3

    def requests(self) -> tuple[int, int]:
        """As in the contract."""
        return self.busy

    def weights(self) -> Mapping[str, Any] | None:
        """As in the contract."""
        return self.new_weights

    def tally(self) -> Tally:
        """As in the contract."""
        return self.counts

    def cpu_times(self) -> CpuTimes | None:
        """As in the contract."""
        return self.cpu

    def active_requests(self) -> dict[str, Any]:
        """As in the contract: nobody asks for anything."""
        running, waiting = self.busy
        return {"k": self.k, "running": running, "waiting": waiting, "active": [], "finished": []}

    def cohorts(self) -> dict[str, Any]:
        """As in the contract: nobody has finished."""
        none = [0] * (4 + 2 * (self.build.k_max + 1))
        return {
            "k_max": self.build.k_max,
            "cells": [],
            "folded": [],
            "unfinished": none,
            "drafts": self.counts.drafts,
            "drafted_per_position": self.counts.drafted_per_position,
            "accepted_per_position": self.counts.accepted_per_position,
        }

    def is_idle(self) -> bool:
        """As in the contract."""
        return self.busy == (0, 0)

    def make_dummy_steps(self, batch: int, k: int, steps: int) -> DummyRun:
        """As in the contract."""
        self.dummies.append((batch, k, steps))
        return DummyRun((self.dummy_s(batch, k),) * steps, interrupted=False)

    def steps(self, since: int, most: int) -> list[Step]:
        """As in the contract."""
        return []

    def finish(self, step: Step) -> None:
        """Has `step` accounted for; what it verified follows from the steps before it."""
        assert self.listener is not None
        verified, settled = self._order.follow(step.step, step.k)
        self.listener.after_step(step._replace(verified=verified, settled=settled))

    def play(self, steps: int, *, by_k: dict[int, int]) -> None:
        """Steps that commit by the k in force; tokens differ a little, as they do."""
        assert self.listener is not None
        for _ in range(steps):
            number = self.played = self.played + 1
            self.listener.before_step()
            self.finish(good_step(number, self.k, by_k[self.k] + (number % 7 == 0)))


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def make_control(
    engine: FakeCore,
    clock: Clock,
    orchestration: dict[str, Any] | None = None,
    exact: tuple[str, ...] = (),
) -> Control:
    """The control over `engine`; without an `orchestration`, one with short drafts."""
    usual = {"min_draft_length": 1, "initial_draft_length": 4}
    return Control(
        engine,
        Identity({"vllm": "0.32.0"}),
        instance="i",
        orchestration=usual if orchestration is None else orchestration,
        clock=clock,
        wall=clock,
        exact=exact,
    )


def good_step(number: int, k: int, committed: int = 4) -> Step:
    """A step of one request that committed so many tokens in 20 ms."""
    accepted = (1,) * (committed - 1) + (0,) * (6 - committed)
    return Step(
        number, 100 + number * 0.02, 1, 1 + k, k, 1, max(k, 1), committed - 1, 0.02, committed,
        accepted,
    )  # fmt: skip


def poor_step(number: int) -> Step:
    """A step of one request whose drafts were all rejected."""
    return Step(number, number * 0.02, 1, 5, 4, 1, 4, 0, 0.02, 1, (0,) * 5)


def work(engine: FakeCore, clock: Clock) -> None:
    """Eight seconds of steps, with the clock at the last one."""
    for number in range(400):
        clock.now = 100 + number * 0.02
        engine.finish(good_step(number, engine.k)._replace(t=clock.now))
