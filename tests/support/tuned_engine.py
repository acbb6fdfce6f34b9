"""An engine that tells its tuning and can be swept, for the console."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from specdeck.engine.errors import SpecdeckError, Unsupported
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import AppliedChange, Capability, Change, EngineState, Lease
from specdeck.engine.protocol.tuning import (
    BreakerTuning,
    CurvePoint,
    Exact,
    Interval,
    KChange,
    LedgerTuning,
    Outlook,
    Parameter,
    SavedTime,
    TrialComparison,
    TrialTuning,
    Tuning,
)
from tests.support.listed_engine import ListedEngine
from tests.support.readings import START, URL

RATES = (412.0, 560.0, 702.0, 846.0, 820.0, 760.0)
WHY = (
    "k 5 → 3: positions 4 and 5 accepted 9 % in the last 2,000 drafts, a step costs 1.8 ms more; "
    "expected +7 % at batch size 4"
)


def tuning(start: float = START) -> Tuning:
    """Everything that a tuning can say."""
    return Tuning(
        instance="a", version=1, t=start + 45, policy="goodput", reason=WHY,
        k=((1, 2, 5), (3, 32, 3)),
        parameters=(
            Parameter("goodput.margin", 0.03, 0.015, "number", 0.0, 0.5,
                      doc="The least expected gain for which k moves, as a share."),
            Parameter("goodput.max_draft_length", None, None, "whole", 1.0, None, optional=True,
                      doc="The largest k; none is k_max."),
            Parameter("breaker.windows", 3, 3, "whole", 1.0, 1000.0,
                      doc="Poor windows in a row that open it."),
        ),
        breaker=BreakerTuning(
            "open", True, "loses 8 % against target-only in 3 windows", "loss",
            "1.0 s: accepted 12 %, 8.1 % slower than target-only", 1.0, 0.12, -0.081,
            since_s=12.0, next_probe_s=3.4, cooldown_s=4.0, opened=2,
        ),
        ledger=LedgerTuning(SavedTime(312.0, 1200.0), SavedTime(4200.0, 16000.0)),
        exact=Exact(("nexus-8b-toolcall-exact",), 120, 8100, 2),
        curve=tuple(
            CurvePoint(3, 4, 3.9, k, 400, 0.01, rate, 4000 / rate, rate - 25, rate + 25, 2.0)
            for k, rate in enumerate(RATES) if k != 1
        ),
        outlook=tuple(
            Outlook(k, 1.0 + 0.7 * k - 0.06 * k * k, rate * 0.98, k != 1, k == 5)
            for k, rate in enumerate(RATES)
        ),
        acceptance=(0.81, 0.62, 0.43, 0.21, 0.09),
        changes=(
            KChange(start + 12, 5, 3, WHY, "policy", "policy"),
            KChange(start + 30, 3, 0, "loses 8 % against target-only", "breaker", "breaker"),
        ),
    )  # fmt: skip


TRIAL = TrialTuning(
    "changed", "ann", {"k": 5}, {"k": 3}, 40.0, 0.0, 41.0, 12.0,
    number=1, turns=13, pairs=7, pairs_planned=16,
)  # fmt: skip
HELD = Lease(10.0, 5, "speculate")
ABLE = tuple(
    Capability(name, True)
    for name in ("live_k", "target_only", "policy.fixed", "policy.goodput", "breaker", "trial")
)
WON = TrialComparison("better", Interval(0.07, 0.02, 0.12), Interval(-0.06, -0.1, -0.02))


class TunedClient:
    """The client of an engine: its tuning is what the test says, a change is the engine's."""

    def __init__(self, tuning: Tuning | None) -> None:
        self.told = tuning
        self.engine: TunedEngine | None = None
        """Makes the changes that are none of a sweep."""
        self.refuse: SpecdeckError | None = None
        self.changed: list[Change] = []
        self.states: list[EngineState] = []
        self.made = 0
        self.held = asyncio.Event()
        self.held.set()

    async def tuning(self) -> Tuning:
        if self.told is None:
            raise Unsupported("the engine runs without the specdeck plugin", remedy="start it")
        return self.told

    async def state(self) -> EngineState:
        return self.states[-1]

    async def facts(self) -> dict[str, object]:
        return {"facts": {"config": {"scheduler": {"max_num_seqs": 32}}}}

    async def steps(self, since: int) -> tuple[Step, ...]:
        await self.held.wait()
        self.made = max(since, self.made) + 40
        k = self.states[-1].k
        drafts, rate = (4 if k else 0), RATES[k] + self.made % 7
        return tuple(
            Step(n, 0.0, 4, 4, k, drafts, drafts * k, 2 * drafts, 40 / rate, 40)
            for n in range(self.made - 39, self.made + 1)
        )

    @property
    def url(self) -> str:
        return URL

    async def try_token(self) -> None:
        """As it is the right one."""

    async def put(self, change: Change) -> AppliedChange:
        if self.engine is not None and change.origin != "sweep":
            return await self.engine.change(change)
        self.changed.append(change)
        state = self.states[-1]
        if self.refuse is not None:
            raise self.refuse
        if change.k is not None:
            self.states.append(replace(state, k=change.k, k_set=change.k, lease=HELD,
                                       version=state.version + 1))  # fmt: skip
        if change.cancel:
            self.states.append(replace(self.states[0], version=state.version + 1))
        return AppliedChange({}, {}, self.states[-1].version, self.made)


class TunedEngine(ListedEngine):
    """Has a client, and takes changes of the breaker and of parameters as well."""

    def __init__(
        self, readings: Sequence[Reading], client: TunedClient, *, armed: bool = True
    ) -> None:
        super().__init__(readings, armed=armed)
        self.client = client
        client.engine = self
        self.trial: int | None = None
        """The number that it gives a trial."""

    async def change(self, change: Change) -> AppliedChange:
        own = change.k is not None or change.mode or change.policy
        if own or self.refuse_with is not None:
            applied = await super().change(change)
            return replace(applied, trial=self.trial if change.judge else None)
        self.asked.append(change)
        knobs = change.knobs()
        before = {"breaker": "closed", "goodput.margin": 0.03}
        return AppliedChange({name: before.get(name) for name in knobs}, knobs, 1, 7)
