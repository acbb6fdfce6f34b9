"""The two ways of serving that a check compares."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from specdeck.engine.client.life import Life, fetch_life, is_same_engine
from specdeck.engine.client.retry import Retry, Sleep
from specdeck.engine.errors import EngineError, Unreachable, Unsupported, UsageError
from specdeck.engine.fingerprint.compare import leaves
from specdeck.engine.fingerprint.fingerprint import refuse_long_places
from specdeck.engine.fingerprint.name import is_whole
from specdeck.engine.metrics.page import read_page
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.methods import drafts_by_text

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.metrics.sample import Sample
    from specdeck.engine.protocol.messages import Capability, EngineState

Name = Literal["serving", "reference"]
Grade = Literal["serving", "soft", "hard"]
"""As production uses it; k = 0 per request in the same engine; another engine."""

_PAUSE_S, _TRIES = 0.5, 60
"""Between two looks at facts that are being gathered, and how many."""
NOT_PINNED = "start the engine with `specdeck run`, or give --reference URL for a hard reference"


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine says of itself; None is not known."""

    model: str
    vllm: str | None = None
    method: str | None = None
    k: int | None = None
    k_max: int | None = None
    mode: str | None = None
    policy: str | None = None
    """What chooses its k; another one than `fixed` moves it."""
    fingerprint: str | None = None
    """specdeck's own."""
    system_fingerprint: str | None = None
    details: Mapping[str, Any] | None = None
    """The facts behind the fingerprint, flattened: what moved can be named later."""
    started: float | None = None
    """Unix time of the process, which stands for the engine where no whole fingerprint does."""
    instance: str | None = None
    """Of its start; of the engine behind it, whatever the address."""

    @property
    def is_known_again(self) -> bool:
        """Whether the engine is known again by these facts, and another one told from it."""
        return is_whole(self.fingerprint) or self.started is not None

    @property
    def life(self) -> Life:
        """Which start of the engine this is of."""
        return Life(self.instance, self.started if self.instance is None else None)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of serving."""

    name: Name
    url: str
    grade: Grade
    facts: Facts
    pin: int | None = None
    """The k that every request of it is pinned to; None leaves it to the engine."""
    price: str | None = None
    """What its requests cost others of the engine; None is nothing."""

    @property
    def model(self) -> str:
        """The name that requests use."""
        return self.facts.model

    @property
    def k(self) -> int | None:
        """Tokens drafted at most for its requests."""
        return self.facts.k if self.pin is None else self.pin

    @property
    def speculates(self) -> bool:
        """Whether it drafts for its requests, by the engine's own word."""
        return self.facts.method is not None and self.facts.mode != "target-only" and bool(self.k)

    @property
    def is_idle(self) -> bool:
        """Whether it drafts nothing for its requests, by the engine's own word."""
        return self.facts.mode is not None and not self.speculates

    def in_state(self, state: EngineState) -> Arm:
        """The same arm as its engine says that it is at this moment."""
        k, mode = drafted_k(state), state.mode
        return replace(self, facts=replace(self.facts, method=state.method, k=k, mode=mode))

    @property
    def drafts_by_text(self) -> bool:
        """Whether its drafter finds something in some texts only: no draft is no standstill."""
        return drafts_by_text(self.facts.method)

    def identity(self) -> dict[str, Any]:
        """What makes two runs comparable: they may be one run only where all of it is the same."""
        facts = self.facts
        return {
            "url": self.url, "grade": self.grade, "model": facts.model, "pin": self.pin,
            "k": facts.k, "mode": facts.mode, "fingerprint": facts.fingerprint,
            "system_fingerprint": facts.system_fingerprint,
            "vllm": facts.vllm, "started": facts.started,
        }  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store."""
        return {"url": self.url, "grade": self.grade, "pin": self.pin, "facts": asdict(self.facts)}


def explain_idle_drafter(serving: Arm, reference: Arm) -> str | None:
    """What a check compares while the serving arm drafts nothing; None where it may draft.

    >>> served = Arm("serving", "", "serving", Facts("m", method="eagle", k=0, mode="speculate"))
    >>> explain_idle_drafter(served, Arm("reference", "", "soft", served.facts, pin=0))
    'the engine drafts nothing (its k is 0): the target is compared with itself'
    >>> explain_idle_drafter(Arm("serving", "", "serving", Facts("m", k=3)), served) is None
    True
    """
    if not serving.is_idle:
        return None
    if serving.facts.method is None:
        why = "it runs without speculative decoding"
    elif serving.facts.mode == "target-only":
        why = "it runs target-only"
    else:
        why = "its k is 0"
    other = "itself" if reference.grade == "soft" else reference.url
    return f"the engine drafts nothing ({why}): the target is compared with {other}"


async def describe_soft(
    client: EngineClient, model: str | None = None, retry: Retry | None = None
) -> tuple[Arm, Arm]:
    """An engine as it serves, and the same engine without a draft for the request.

    Raises Unsupported where it cannot pin a request.
    """
    facts, pins = await describe_engine(client, model, retry)
    if pins is None or not pins.available:
        why = "the engine cannot leave the draft out of a single request"
        if pins is not None and pins.reason:
            why = f"{why} ({pins.reason})"
        raise Unsupported(why, remedy=NOT_PINNED)
    return (
        Arm("serving", client.url, "serving", facts),
        Arm("reference", client.url, "soft", facts, pin=0, price=pins.reason),
    )


async def describe_hard(
    serving: EngineClient,
    reference: EngineClient,
    model: str | None = None,
    retry: Retry | None = None,
) -> tuple[Arm, Arm]:
    """Two engines, each as it serves; the second may have another name for the model."""
    ours, _ = await describe_engine(serving, model, retry)
    same = ours.model if ours.model in await reference.models() else None
    theirs, _ = await describe_engine(reference, same, retry)
    return (
        Arm("serving", serving.url, "serving", ours),
        Arm("reference", reference.url, "hard", theirs),
    )


async def refuse_itself(serving: EngineClient, reference: EngineClient) -> None:
    """Raises UsageError where two addresses are of one engine, and EngineError for one away."""
    if await is_same_engine(serving, reference):
        raise UsageError(
            f"{reference.url} is the engine that is checked: it agrees with itself in any case",
            remedy="name another one, or none to leave the draft out of single requests",
        )


async def describe_engine(
    client: EngineClient, model: str | None, retry: Retry | None = None
) -> tuple[Facts, Capability | None]:
    """What an engine says of itself, and whether it can pin requests; None without the plugin.

    Raises EngineError at once when it cannot be reached, or serves no model of that name. One
    that lists its models is there, and waited for where the rest takes it long.
    """
    retry = retry or Retry(0.0)
    served = await client.models()
    if not served or (model is not None and model not in served):
        names = ", ".join(served) or "none"
        raise EngineError(f"{client.url} serves {names}, not {model}", remedy="check --model")
    name = model or served[0]
    try:
        details = await retry.answer(lambda: _fetch_facts(client))
        state = await retry.answer(client.state)
    except Unsupported:
        version = await retry.answer(client.version)
        seen = await fetch_counters(client)
        return Facts(name, vllm=version, started=seen.process_start if seen else None), None
    return (
        Facts(
            model=name,
            vllm=state.vllm,
            method=state.method,
            k=drafted_k(state),
            k_max=state.k_max,
            mode=state.mode,
            policy=state.policy,
            fingerprint=state.fingerprint,
            system_fingerprint=state.system_fingerprint,
            details=details,
            started=None if is_whole(state.fingerprint) else state.started,
            instance=state.instance,
        ),
        state.can("request_k"),
    )


def drafted_k(state: EngineState) -> int:
    """Tokens that it drafts per round at this moment: none while the breaker is open."""
    return 0 if state.breaker == "open" else state.k


async def is_replaced(arm: Arm, client: EngineClient) -> bool:
    """Whether another engine answers by now than the one that was described.

    One that was only restarted, and has the fingerprint that it had, is none. Raises EngineError
    where nobody says which start of it this is.
    """
    if not (await fetch_life(client)).is_another(arm.facts.life):
        return False
    try:
        facts, _ = await describe_engine(client, arm.model)
    except EngineError:
        return True
    return not is_whole(facts.fingerprint) or facts.fingerprint != arm.facts.fingerprint


def has_drafted(before: float, now: float) -> bool:
    """Whether anything was drafted between two counts, which begin anew where the engine does."""
    return now > before if now >= before else now > 0


async def fetch_counters(client: EngineClient) -> Sample | None:
    """What the engine's metrics say at this moment; None where there are none to be read."""
    try:
        return await read_page(await client.page(), t=0.0, at=0.0)
    except EngineError:
        return None


async def _fetch_facts(client: EngineClient, sleep: Sleep = asyncio.sleep) -> dict[str, Any] | None:
    """The facts, once the engine has read its weights; None where it does not tell them.

    After a start the fingerprint moves once when they are all known, and a run that was cut
    short by a restart is known again by it. Raises Unreachable.
    """
    for tries in range(_TRIES + 1):
        try:
            reply = await client.facts()
        except Unreachable:
            raise
        except EngineError:
            return None
        progress = reply.get("progress")
        finished = not isinstance(progress, dict) or progress.get("finished", True)
        if finished or tries == _TRIES:
            break
        await sleep(_PAUSE_S)
    facts = reply.get("facts")
    if not isinstance(facts, dict):
        return None
    try:
        refuse_long_places(facts)
    except WrongType:
        return None
    return {place: value for place, value in leaves(facts) if value != {}}


def changed_facts(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """The facts that are not what they were.

    >>> changed_facts({"vllm": "0.31.0", "a": 1}, {"vllm": "0.32.0", "a": 1})
    ('vllm',)
    """
    old, new = before or {}, after or {}
    return tuple(sorted(k for k in {*old, *new} if old.get(k) != new.get(k)))
