"""A check from the engines' addresses to its outcome: arms, the run to go on with, the verdict."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from specdeck.engine.client.retry import RETRY_S, Retry, Waiting
from specdeck.engine.divergence import arms as arms_of
from specdeck.engine.divergence.arms import Arm
from specdeck.engine.divergence.compare import Divergence
from specdeck.engine.divergence.outcome import Case, Outcome, build_outcome
from specdeck.engine.divergence.requests import Asker, Pacer, Settings, http_client
from specdeck.engine.divergence.runner import Check, Found, Progress
from specdeck.engine.errors import Unsupported
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.store.checks import Checks, Pair, Run

if TYPE_CHECKING:
    import httpx

    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.divergence.prompts import PromptSet


@dataclass(frozen=True, slots=True)
class Engine:
    """Where one arm answers, and what it wants to be told."""

    client: EngineClient
    api_key: str | None = None
    transport: httpx.AsyncBaseTransport | None = None

    def __repr__(self) -> str:
        return f"Engine({self.client.url})"


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operator asks of a check."""

    settings: Settings = field(default_factory=Settings)
    threshold: float = 0.015
    streams: int = 8
    """Requests at once on each engine."""
    gentle: bool = False
    private: bool = False
    fresh: bool = False
    """Begins anew even where a run was cut short."""
    calls: int = 5
    model: str | None = None
    patience_s: float = RETRY_S


class Lab:
    """Two arms, ready to be asked; an async context manager."""

    def __init__(
        self,
        serving: Engine,
        reference: Engine | None,
        plan: Plan,
        *,
        wall: Callable[[], float] = time.time,
        on_notice: Callable[[Waiting], None] = lambda waiting: None,
    ) -> None:
        """`on_notice` hears of an engine that is waited for."""
        self._retry = Retry(plan.patience_s, on_notice=on_notice)
        self._engines = serving, reference
        self.plan = plan
        self._wall = wall
        self._stack = AsyncExitStack()
        self.arms: tuple[Arm, Arm]
        self.askers: tuple[Asker, Asker]
        """Serving and reference; their `pieces` are the streams of a split screen."""
        self.resumed = 0
        """Prompts that an earlier attempt had done."""

    async def __aenter__(self) -> Self:
        serving, reference = self._engines
        if reference is None:
            self.arms = await arms_of.describe_soft(serving.client, self.plan.model, self._retry)
        else:
            clients = serving.client, reference.client
            self.arms = await arms_of.describe_hard(*clients, self.plan.model, self._retry)
        streams = 1 if self.plan.gentle else self.plan.streams
        ours = self._http(serving, streams)
        theirs = ours if reference is None else self._http(reference, streams)
        one, other = self.arms
        self.askers = self._asker(ours, one), self._asker(theirs, other)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def check(self, prompts: PromptSet, store: Checks) -> Check:
        """A run over `prompts`: the one that was cut short, or a new one."""
        run = self._run(prompts, store)
        self.resumed = int(run.totals.get("prompts", 0)) + int(run.totals.get("refused", 0))
        pace = self.pacer()
        return Check(
            *self.askers,
            prompts,
            store=store,
            run=run,
            streams=1 if self.plan.gentle else self.plan.streams,
            private=self.plan.private,
            pace=pace,
        )

    async def finished(self, check: Check, store: Checks) -> Outcome:
        """The outcome of a run that was iterated to its end; it is kept and not resumed."""
        run = check.run.id
        if check.totals.refused and not check.totals.prompts:
            number, why = store.refusals(run)[0]
            store.forget(run)  # it would be found again, and nothing asked
            raise Unsupported(
                f"every prompt was refused by an arm: prompt {number}: {why}",
                remedy="give other prompts, or see to the engine's arguments",
            )
        found = build_outcome(
            check.totals,
            self.arms,
            cases=_cases(store, run, "cross"),
            floor_cases=(
                case for case in _cases(store, run, "reference") if not case.divergence.stream_only
            ),
            told=_told(store, run),
            refused=store.refusals(run),
            threshold=self.plan.threshold,
            calls=self.plan.calls,
        )
        store.finish(run, self._wall(), found.as_json())
        return found

    def _run(self, prompts: PromptSet, store: Checks) -> Run:
        one, other = self.arms
        settings = replace(self.plan.settings, priority=0).as_json()
        wanted = canonical(
            {
                "arms": [one.key(), other.key()],
                "prompts": [prompts.digest, prompts.count],
                "settings": settings,
                "private": self.plan.private,
            }
        )
        key = hashlib.sha256(wanted).hexdigest()[:32]
        known = None if self.plan.fresh else store.resume(key)
        facts = {"serving": one.as_json(), "reference": other.as_json(), "settings": settings,
                 "prompts": prompts.digest}  # fmt: skip
        return known or store.begin(key, self._wall(), one.url, facts)

    def pacer(self) -> Pacer | None:
        """What a gentle plan paces its requests by; None for any other.

        The requests get a low priority too where the engine schedules by it.

        A priority decides who waits and who is preempted. It does not keep a request out of
        the batch that production's tokens come from, so it is no substitute for a pace.
        """
        if not self.plan.gentle:
            return None
        # vLLM answers a request with a priority either way: only its config tells.
        policies = [(arm.facts.details or {}).get("config.scheduler.policy") for arm in self.arms]
        if all(policy == "priority" for policy in policies):
            for asker in self.askers:
                asker.settings = replace(asker.settings, priority=1)
        return Pacer(self._engines[0].client)

    async def drafted(self) -> float | None:
        """Tokens that the serving engine has drafted for anybody; None where it does not say."""
        seen = await arms_of.fetch_counters(self._engines[0].client)
        if seen is None:
            return None
        # An engine without a drafter has no counter of drafts, only those of everything else.
        return 0.0 if seen.drafted is None and seen.generated is not None else seen.drafted

    def _http(self, engine: Engine, streams: int) -> httpx.AsyncClient:
        http = http_client(
            engine.client.url,
            streams=2 * streams,
            api_key=engine.api_key,
            transport=engine.transport,
        )
        self._stack.push_async_callback(http.aclose)
        return http

    def _asker(self, http: httpx.AsyncClient, arm: Arm) -> Asker:
        return Asker(http, arm, self.plan.settings, retry=self._retry)


async def run(
    lab: Lab, prompts: PromptSet, store: Checks, said: Callable[[Progress | Found], None]
) -> Outcome:
    """The whole check; `said` hears of everything as it comes."""
    check = await lab.check(prompts, store)
    events: AsyncGenerator[Progress | Found, None] = check.events()
    try:
        async for event in events:
            said(event)
    finally:
        await events.aclose()
    return await lab.finished(check, store)


def _told(store: Checks, run: int) -> Iterator[Case]:
    """What the serving arm, and it alone, streams otherwise than it tells it whole."""
    for case in _cases(store, run, "serving"):
        if case.divergence.streamed_alone:
            yield replace(case, streamed_by="serving")


def _cases(store: Checks, run: int, pair: Pair) -> Iterator[Case]:
    for row in store.divergences(run, pair):
        assert row.detail is not None
        yield Case(row.prompt, row.prompt_hash, Divergence.from_json(row.detail))
