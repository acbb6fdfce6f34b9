"""The knobs of one engine in force: what its scheduler and drafter are told.

The operator's k, the policy's table or the breaker's zero: one of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from specdeck.engine.control.protocol import Capability, Change, Origin
from specdeck.engine.plugin.autopilot import Autopilot
from specdeck.engine.plugin.capabilities import capabilities
from specdeck.engine.plugin.fingerprint_identity import Identity
from specdeck.engine.plugin.knobs import Knobs
from specdeck.engine.plugin.seam import Engine
from specdeck.engine.policy.catalogue import Catalogue, configured
from specdeck.engine.policy.observed import StepSeen

_WATCHED = ("trial", "policy.threshold", "policy.goodput")
"""What an engine can only do while its steps are seen."""


class Steering:
    """Brings knobs about on an `Engine`, watches its steps, and has its path named."""

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        *,
        orchestration: Mapping[str, Any],
        wall: Callable[[], float],
    ) -> None:
        self.engine = engine
        self._identity = identity
        self.capabilities = capabilities(engine.build)
        self.configured, self.wrong = configured(orchestration)
        """The parameters as the engine was started, and the blocks that made no sense."""
        self.catalogue: Catalogue = self.configured
        """The parameters in force."""
        self.knobs = Knobs(k=engine.build.k_max, scheduled=engine.build.own_schedule)
        self.pilot = self._watching(wall)
        """What observes the engine and chooses k; None where k cannot be changed."""
        if self.pilot is not None and not self.knobs.scheduled:
            engine.set_k(self.knobs.live_k)
        self._follow(self.knobs)
        self.name()

    def _watching(self, wall: Callable[[], float]) -> Autopilot | None:
        build = self.engine.build
        if not self.can("live_k").available or build.k_max < 1:
            return None
        return Autopilot(
            self.catalogue,
            k=self.knobs.k,
            k_max=build.k_max,
            zero=self.can("target_only").available,
            asynchronous=build.asynchronous,
            wall=wall,
        )

    def can(self, name: str) -> Capability:
        """Whether the engine can, and the reason where not."""
        return next(c for c in self.capabilities if c.name == name)

    def seen(self, record: Mapping[str, Any]) -> StepSeen | None:
        """Learns from a step, and has the policy choose the k's for the next one."""
        pilot = self.pilot
        if pilot is None:
            return None
        seen = pilot.see(record)
        steering = self.knobs.mode == "speculate"
        was = pilot.breaker.state
        if pilot.step(seen, steering=steering):
            self._tell()
            if pilot.breaker.state != was:
                self.name()
        return seen

    def blinded(self, why: str) -> None:
        """Nothing that needs to see steps can be wanted any more; a held breaker stays open."""
        self.capabilities = tuple(
            replace(can, available=False, reason=why, remedy="start the engine anew")
            if can.name in _WATCHED
            else can
            for can in self.capabilities
        )
        pilot = self.pilot
        if pilot is None:
            return
        pilot.breaker.silence()
        if pilot.bypassed and not pilot.breaker.held:
            pilot.reset()
            self._tell()

    def look(self, t: float) -> None:
        """Has time pass to `t`, seconds of the clock of the steps: an idle engine makes none."""
        if self.pilot is not None:
            self.pilot.look(t)

    def turn(self, knobs: Knobs, *, why: str, who: str, origin: Origin) -> tuple[str, ...]:
        """Makes `knobs` the engine's, in an order in which no step drafts without a drafter."""
        before, self.knobs = self.knobs, knobs
        k = self.engine.scheduled_k()
        try:
            notices = self._bring_about(knobs, before)
        except Exception:
            self.knobs = before  # what could not be done is neither claimed nor left half done
            self._follow(before)
            self._tell()
            raise
        if knobs != before:
            self.name()
            self._note(k, why, "trial" if origin == "trial" else who, origin)
        return notices

    def hand(self, change: Change, *, who: str) -> None:
        """Opens or resets the breaker from outside, at once."""
        pilot = self.pilot
        assert pilot is not None
        k = self.engine.scheduled_k()
        if change.breaker == "open":
            reason = change.reason or f"opened by {who}"
            pilot.trip(change.cause or "hand", reason, hold=not change.probe)
        else:
            pilot.reset()
        self._tell()
        self.name()
        words = f": {change.reason}" if change.reason else ""
        why = "for divergence" if change.cause else "by hand"
        self._note(k, f"breaker {change.breaker} {why}{words}", who, change.origin)

    def _note(self, before: int, why: str, who: str, origin: Origin) -> None:
        if self.pilot is not None:
            self.pilot.work.begin()
            self.pilot.note(before, self.engine.scheduled_k(), why, who, origin)

    def _bring_about(self, knobs: Knobs, before: Knobs) -> tuple[str, ...]:
        notices: tuple[str, ...] = ()
        if knobs != before and self.pilot is not None:
            self._follow(knobs)
            self._tell()
            if knobs.mode == "target-only":
                self.pilot.breaker.silence()
            if before.scheduled and not knobs.scheduled:
                notices += ("the configured k by batch size is replaced until the next start",)
        if knobs.cold != before.cold:
            self.engine.skip_drafter(knobs.cold)
            if before.cold:
                # The drafter saw none of the tokens of the cold time, neither in the running
                # requests nor in the prefix cache: acceptance would stay near zero for both.
                preempted = self.engine.resync()
                notices += (f"resync: {preempted} requests preempted, prefix cache emptied",)
        return notices

    def _follow(self, knobs: Knobs) -> None:
        """Has the policy and the parameters of `knobs` choose from now on."""
        self.catalogue = self.configured.with_values(knobs.parameters)
        if self.pilot is not None:
            self.pilot.follow(knobs.policy, k=knobs.k, catalogue=self.catalogue)

    def _tell(self) -> None:
        """Has the scheduler told the operator's k, the policy's, or what the breaker leaves."""
        pilot, knobs = self.pilot, self.knobs
        if pilot is None or knobs.mode == "target-only":
            self.engine.set_k(knobs.live_k)
        elif knobs.policy != "fixed" or pilot.interrupted:
            self.engine.set_table(pilot.decision.table)
        elif knobs.scheduled:
            self.engine.restore_schedule()
        else:
            self.engine.set_k(knobs.live_k)

    @property
    def bypassed(self) -> bool:
        """Whether the breaker has k."""
        return self.pilot is not None and self.pilot.bypassed

    def touched(self, change: Change) -> list[str]:
        """What `change` asks for, and the policy where a k ends it: undoing wants both."""
        names = list(change.asked())
        ends = self.knobs.turned(change).policy != self.knobs.policy
        return [*names, "policy"] if ends and change.policy is None else names

    def picked(self, names: Iterable[str]) -> dict[str, Any]:
        """The knobs, the breaker and the parameters called `names`, as they are now."""
        found: dict[str, Any] = {}
        for name in names:
            if name == "breaker":
                found[name] = "open" if self.bypassed else "closed"
            elif "." in name:
                found[name] = self.catalogue.value(name)
            else:
                found[name] = getattr(self.knobs, name)
        return found

    def undoing(self, change: Change) -> dict[str, str]:
        """The word that takes `change` of the breaker back, as `specdeck set` spells it.

        Opened, it is to be reset, whatever it was: opening it once more would hold it for ever.
        """
        if change.breaker is None:
            return {}
        pilot = self.pilot
        if pilot is None or not pilot.bypassed or (change.breaker == "open" and not change.probe):
            return {"breaker": "closed"}
        return {"breaker": "open" if pilot.breaker.held else "probe"}

    def name(self) -> str:
        """The path's name with what is in force at this moment."""
        breaker = self.pilot.breaker.state if self.pilot else "closed"
        return self._identity.now(self.knobs.live(breaker))
