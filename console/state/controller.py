"""Steers engines: follows their readings, sends what is wished, and tells who shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from specdeck.console.state.engine_state import KnownTrial, Track, find_trial, fold_reading
from specdeck.console.state.pending import (
    Obstacle,
    add_wish,
    as_request,
    describe_sent,
    find_obstacle,
    fold_answer,
    fold_error,
    k_wanted,
    next_breaker,
    next_mode,
    next_policy,
    send_wish,
    take_back_unsent,
    undo_answered,
    undo_sent,
)
from specdeck.console.state.timeline import RecordedEngine
from specdeck.console.state.tuning import describe_trial
from specdeck.console.state.undo import undo_of_trial
from specdeck.console.widgets.cells import Tone
from specdeck.console.widgets.format import KeyLabel
from specdeck.engine.client.attach import MonitoredEngine
from specdeck.engine.errors import Conflict, SpecdeckError, Unauthorized, Unsupported
from specdeck.engine.protocol.messages import AppliedChange, Change, EngineState
from specdeck.engine.text import format_changes

if TYPE_CHECKING:
    from specdeck.console.state.sweeps import Sweeps
    from specdeck.engine.blackbox.event import EventKind
    from specdeck.engine.client.engine_client import EngineClient
    from specdeck.engine.metrics.reading import Reading
    from specdeck.engine.metrics.sample import Sample
    from specdeck.engine.operations.change import ReadingFeed
    from specdeck.engine.operations.record import Audit
    from specdeck.engine.operations.trial import TrialEnded
    from specdeck.engine.protocol.tuning import Tuning
    from specdeck.engine.store.audit import Action, Outcome

LOOK_S = 2.0
"""Between two looks at a trial of this console."""


class Task(Protocol):
    """Work that runs beside the caller."""

    def cancel(self) -> object:
        """Ends it at the next point at which it waits."""


class Spawn(Protocol):
    """Starts work; `group` says what kind it is of."""

    def __call__(self, work: Coroutine[Any, Any, None], group: str) -> Task:
        """The work, begun."""


class Load(Protocol):
    """Load that specdeck puts on an engine."""

    @property
    def profile(self) -> str:
        """The profile that runs."""

    def next(self) -> str:
        """Switch to the next profile and name it."""


@runtime_checkable
class AskedEngine(MonitoredEngine, Protocol):
    """An engine that can be asked for more than readings; a recording cannot."""

    @property
    def client(self) -> EngineClient:
        """For what a console asks beyond readings, and for what it changes."""

    def look(self) -> None:
        """Has the next reading taken at once."""


class _NoAudit:
    """Forgets every change."""

    def add(self, action: Action) -> int:
        return 0

    def replace(self, entry: int, action: Action) -> None:
        return

    def remove(self, entry: int) -> None:
        return

    def set_observed(self, entry: int, draft_tokens_per_draft: float) -> None:
        return

    def set_outcome(self, entry: int, outcome: Outcome) -> None:
        return


class Controller:
    """Owns what is known of the engines, and acts on the one that is selected.

    `spawn` starts work beside the caller, `clock` is Unix time, `steady` a clock that is never
    set; with `sleep` they are arguments, so that nothing here needs a terminal.
    """

    def __init__(
        self,
        engines: Sequence[MonitoredEngine],
        *,
        spawn: Spawn,
        who: str = "operator",
        interval: float = 1.0,
        audit: Audit | None = None,
        load: Load | None = None,
        key_label: KeyLabel = str,
        until_shown: Callable[[], Awaitable[object]] | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Follow nothing yet; without `audit` no change is remembered.

        `until_shown` is waited for before the first reading, whose client takes time to import.
        """
        self.engines = tuple(engines)
        profile = None if load is None else load.profile
        self.tracks = [Track(one.name, one.url, _is_recorded(one), load=profile) for one in engines]
        """What is known of each engine."""
        self.selected = 0
        """The engine that a key acts on."""
        self.who = who
        self.load = load
        self.clock, self.steady, self.sleep = clock, steady, sleep
        self.spawn = spawn
        self.interval = interval
        self._audit: Audit = audit or _NoAudit()
        self._key_label = key_label
        self._until_shown = until_shown
        self._is_started = False
        self._listeners: list[Callable[[], None]] = []
        self._readers: list[Callable[[int, Reading], None]] = []
        self._feeds: tuple[set[ReadingFeed], ...] = tuple(set() for _ in engines)
        """Of each engine, for the changes that wait to be seen in its readings."""
        self._asking: set[int] = set()
        self._attended: dict[int, int | None] = {}
        """The number of the trial that this console attends, by engine; None of a plugin that
        counts none."""
        self._sweeps: Sweeps | None = None

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever something is to be shown anew, once for a reading.

        What is returned ends it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add_reader(self, reader: Callable[[int, Reading], None]) -> None:
        """Call `reader` with every engine's number and reading, before listeners are told."""
        self._readers.append(reader)

    def refresh(self) -> None:
        """Have everything shown anew."""
        for listener in tuple(self._listeners):
            listener()

    @property
    def track(self) -> Track:
        """What is known of the selected engine."""
        return self.tracks[self.selected]

    @property
    def engine(self) -> MonitoredEngine:
        """The selected engine."""
        return self.engines[self.selected]

    def select(self, index: int) -> None:
        """Act on another engine from here on; counted around at both ends."""
        self.selected = index % len(self.engines)
        self.refresh()

    @property
    def is_idle(self) -> bool:
        """Whether no engine is being asked for a change."""
        return not self._asking

    def put(self, index: int, track: Track) -> None:
        """Take a newer value of what is known of an engine, and have it shown."""
        self.tracks[index] = track
        self.refresh()

    def take_names(self) -> None:
        """Call every engine what it is called now: one that starts gets its name from others."""
        for index, one in enumerate(self.engines):
            self.tracks[index] = replace(self.tracks[index], name=one.name)

    def tell(
        self,
        text: str,
        tone: Tone = "plain",
        *,
        index: int | None = None,
        kind: EventKind = "other",
    ) -> None:
        """One more event of the selected engine, or of another one."""
        index = self.selected if index is None else index
        self.put(index, self.tracks[index].add_event(self.clock(), text, tone, kind=kind))

    def refuse(self, why: str, tone: Tone = "warn", *, kind: EventKind = "other") -> None:
        """Say why a key does nothing; said once more, it is one event."""
        index = self.selected
        self.put(index, self.tracks[index].add_refusal(self.clock(), why, tone, kind=kind))

    def start(self) -> None:
        """Follow every engine, from the first call on."""
        if self._is_started:
            return
        self._is_started = True
        for index in range(len(self.engines)):
            self.spawn(self.follow(index), "follow")

    async def follow(self, index: int) -> None:
        """Take in one engine's readings: for ever, or to the end of a recording."""
        if self._until_shown is not None:
            await self._until_shown()
        async for reading in self.engines[index].readings(self.interval):
            before = self.tracks[index]
            self.tracks[index] = fold_reading(before, reading)
            if before.known is None and reading.state is not None and self.engines[index].armed:
                self.spawn(self._try_token(index), "token")
            for feed in self._feeds[index]:
                feed.push(reading)
            for reader in self._readers:
                reader(index, reading)
            old, new = before.known, reading.word
            was_trying = old is not None and old.trial is not None
            if new is not None and was_trying != (new.trial is not None):
                self.look(index)  # a trial that began or ended, or was there, whoever's it is
            self.refresh()
        track = self.tracks[index]
        if track.recorded and track.reading is not None:
            end = track.add_event(track.reading.t, "the recording ends here", "accent")
            self.put(index, end)

    def look(self, index: int) -> None:
        """Ask one engine for its tuning, and tell of a trial that has ended."""
        if self.find_client(index) is not None:
            self.spawn(self.refresh_tuning(index), "look")

    async def refresh_tuning(self, index: int) -> None:
        """The same, to be waited for."""
        client = self.find_client(index)
        if client is None:
            return
        try:
            tuning = await client.tuning()
        except SpecdeckError as error:
            self.put(index, replace(self.tracks[index], tuning=None, untuned=error))
            return
        self._take_tuning(index, tuning)

    def _take_tuning(self, index: int, tuning: Tuning) -> None:
        track = self.tracks[index]
        before, trial = track.tuning, tuning.trial
        track = replace(track, tuning=tuning, untuned=None)
        was = before.trial if before is not None and before.instance == tuning.instance else None
        if trial is not None and trial.over and was is not None and not was.over:
            text, tone = describe_trial(trial)
            track = track.add_event(self.clock(), f"trial {text}", tone, kind="trial")
        self.put(index, track)

    def list_requests(self, index: int) -> None:
        """Ask one engine for what runs."""
        if self.find_client(index) is not None:
            self.spawn(self.refresh_requests(index), "requests")

    async def refresh_requests(self, index: int) -> None:
        """The same, to be waited for."""
        client = self.find_client(index)
        if client is None:
            return
        try:
            found = await client.requests()
        except SpecdeckError as error:
            self.put(index, replace(self.tracks[index], requests=None, unlisted=error))
            return
        self.put(index, replace(self.tracks[index], requests=found, unlisted=None))

    def find_client(self, index: int) -> EngineClient | None:
        """Asks an engine for more than readings; None where nothing can be asked."""
        engine = self.engines[index]
        return engine.client if isinstance(engine, AskedEngine) else None

    def change_k(self, by: int) -> None:
        """k up or down, counted from what was last asked for."""
        self.wish(Change(k=(k_wanted(self.track) or 0) + by))

    def toggle_mode(self) -> None:
        """From speculation to target-only, or back."""
        self.wish(next_mode(self.track))

    def toggle_policy(self) -> None:
        """Have the goodput policy choose k, or keep k where the operator has put it."""
        self.wish(next_policy(self.track))

    def toggle_breaker(self) -> None:
        """Open the breaker by hand, or reset it."""
        self.wish(next_breaker(self.track))

    def next_load(self) -> None:
        """The next load profile, where specdeck makes the load."""
        if self.load is not None:
            profile = self.load.next()
            self.tracks = [replace(one, load=profile) for one in self.tracks]
            self.tell(f"load profile {profile}", "accent", kind="load")

    def arm(self) -> None:
        """Let changes through to the selected engine, or say why they cannot be."""
        try:
            self.engine.arm()
        except SpecdeckError as error:
            self.refuse(error.line())
            return
        said = "control armed: every change is recorded and can be undone"
        self.tell(said, "accent", kind="control")
        self.spawn(self._try_token(self.selected), "token")

    async def _try_token(self, index: int) -> None:
        """Whether control is what it looks like: a wrong token makes it read-only again."""
        client = self.find_client(index)
        if client is None:
            return
        try:
            await client.try_token()
        except Unauthorized as error:
            said = f"{error.line()}; control is read-only again"
            self.tell(said, "bad", index=index, kind="control")
        except SpecdeckError:
            return  # a change meets it too, and says so

    def find_obstacle(self, want: Change) -> Obstacle | None:
        """Why the selected engine would not do it; None where it might."""
        armed = self.engine.armed
        return find_obstacle(self.track, want, armed=armed, key_label=self._key_label)

    def keep_target(self) -> Callable[[], bool]:
        """For an answer that is given later: whether a key still acts on what it acts on now.

        What is returned says it where the engine was started anew since; an engine that does not
        answer is an obstacle of its own. Another one may be selected by then.
        """
        index, known = self.selected, self.track.known

        def is_kept() -> bool:
            now = self.tracks[index].known
            if known is not None and now is not None and _is_other_life(known, now):
                line = "not done: the engine was started anew since that was asked"
                self.tell(line, "warn", index=index)
                return False
            return self.selected == index

        return is_kept

    def wish(self, want: Change) -> bool:
        """Ask for a change unless it is known to be refused; wishes add up."""
        index = self.selected
        obstacle = self.find_obstacle(want)
        if obstacle is not None:
            self.refuse(obstacle.line())
            return False
        self.put(index, add_wish(self.tracks[index], want))
        self._ask(index)
        return True

    def _ask(self, index: int) -> None:
        """Send what is wished; one request at a time, the last wish wins."""
        if self.tracks[index].want is not None and index not in self._asking:
            self._asking.add(index)
            self.spawn(self._send(index), "steer")

    async def _send(self, index: int) -> None:
        """One request, and what comes of it, long after the next one is on its way."""
        track = self.tracks[index]
        want, answered = track.want, False
        change: Change | None = None
        life = None if track.known is None else track.known.instance
        try:
            if want is None or track.known is None:
                return
            client = self.find_client(index)
            if client is None:
                raise Unsupported(f"{track.name} cannot be asked for a change")
            change = as_request(want, self.who, track.version)
            self.tracks[index] = send_wish(track)
            events = self._try_change if want.trial_s is not None else self._make_change
            async with aclosing(events(index, client, change, track.known)) as answers:
                async for applied, ack_ms in answers:
                    answered = True
                    self._asking.discard(index)
                    self._answer(index, want, applied, ack_ms, life)
        except SpecdeckError as error:
            if answered:
                self.tell(error.line(), "warn", index=index, kind="change")
            else:
                # What was wished meanwhile goes too, since it was built upon it.
                track = fold_error(self.tracks[index], error, self.clock(), change, life)
                self.put(index, track)
                self._look_again(index, error)
        finally:
            if not answered:
                self._asking.discard(index)

    def _look_again(self, index: int, error: SpecdeckError) -> None:
        """Read at once what was changed meanwhile: until then whatever is asked is refused too."""
        engine = self.engines[index]
        if isinstance(error, Conflict) and isinstance(engine, AskedEngine):
            engine.look()

    async def _make_change(
        self, index: int, client: EngineClient, change: Change, known: EngineState
    ) -> AsyncGenerator[tuple[AppliedChange, float], None]:
        """The engine's word and the milliseconds that it took; ends with the change's proof."""
        from specdeck.engine.operations.change import (
            TIMEOUT_S,
            ChangeApplied,
            ChangeNotObserved,
            ChangeObserved,
            ChangeRequested,
            ReadingFeed,
            make_change,
        )
        from specdeck.engine.operations.record import NotRecorded

        # A proof takes three readings, however far they are apart.
        patience_s = max(TIMEOUT_S, 5 * self.interval)
        feed, figures = ReadingFeed(), self.tracks[index].figures
        making = make_change(
            client, change, name=self.engines[index].name, known=known,
            looks=feed.looks(), audit=self._audit, clock=self.steady, wall=self.clock,
            known_t=None if figures is None else figures.t,
            timeout_s=patience_s, idle_s=patience_s,
        )  # fmt: skip
        try:
            tone: Tone
            async with aclosing(making) as events:
                async for event in events:
                    if isinstance(event, ChangeRequested):
                        # Where its reply is lost, the readings from here on tell of it.
                        self._feeds[index].add(feed)
                    elif isinstance(event, ChangeApplied):
                        yield event.applied, event.ack_ms
                        self._count_proofs(index, 1)
                    elif isinstance(event, NotRecorded):
                        self._tell_unrecorded(index, event.error)
                    elif isinstance(event, ChangeObserved):
                        self._count_proofs(index, -1)
                        tone = "bad" if event.is_contradicted else "good"
                        self.tell(event.line(), tone, index=index, kind="change")
                    elif isinstance(event, ChangeNotObserved):
                        self._count_proofs(index, -1)
                        if event.reason != "superseded":
                            tone = "bad" if event.is_bad else "muted"
                            self.tell(event.line(), tone, index=index, kind="change")
        finally:
            self._feeds[index].discard(feed)

    async def _try_change(
        self, index: int, client: EngineClient, change: Change, known: EngineState
    ) -> AsyncGenerator[tuple[AppliedChange, float], None]:
        """The same of a judged trial, which is kept alive until it ends or this console does."""
        from specdeck.engine.operations.change import ChangeApplied
        from specdeck.engine.operations.record import NotRecorded
        from specdeck.engine.operations.trial import TrialEnded, TrialRunner, TrialSeen

        async def read_sample() -> Sample | None:
            reading = self.tracks[index].reading
            return None if reading is None else reading.sample

        trial = TrialRunner(
            client, change, name=self.engines[index].name, audit=self._audit,
            instance=known.instance, every=LOOK_S,
            read_sample=read_sample, clock=self.steady, wall=self.clock, sleep=self.sleep,
        )  # fmt: skip
        try:
            async with aclosing(trial.attend()) as events:
                async for event in events:
                    if isinstance(event, ChangeApplied):
                        self._attended[index] = event.applied.trial
                        yield event.applied, event.ack_ms
                    elif isinstance(event, NotRecorded):
                        self._tell_unrecorded(index, event.error)
                    elif isinstance(event, TrialSeen | TrialEnded):
                        self._take_tuning(index, event.tuning)
                        if isinstance(event, TrialEnded):
                            self._tell_doubt(index, event)
        finally:
            self._attended.pop(index, None)

    def _tell_doubt(self, index: int, end: TrialEnded) -> None:
        """What the engine shows beside its word of a trial's end."""
        from specdeck.engine.operations.change import describe_wait

        if end.is_contradicted:
            self.tell(end.line(), "bad", index=index, kind="trial")
        elif end.waits_for is not None:
            what = f"{format_changes({}, end.in_force)} is stored: {describe_wait(end.waits_for)}"
            self.tell(what, "warn", index=index, kind="trial")

    def _answer(
        self, index: int, want: Change, applied: AppliedChange, ack_ms: float, life: str | None
    ) -> None:
        """Take in what the engine did, and ask for what was wished meanwhile."""
        track, seconds = self.tracks[index], ack_ms / 1e3
        sent = track.sent
        track = fold_answer(track, want, applied, self.clock(), seconds, life)
        if sent is not None and sent.undo and sent.back is None:
            track = undo_answered(track, sent, applied, self.clock())
        self.tracks[index] = track
        self._ask(index)
        if want.parameters or want.breaker or want.cancel:
            self.look(index)
        self.refresh()

    def _count_proofs(self, index: int, by: int) -> None:
        track = self.tracks[index]
        self.tracks[index] = replace(track, proofs_awaited=track.proofs_awaited + by)

    def _tell_unrecorded(self, index: int, error: SpecdeckError) -> None:
        self.tell(f"not recorded: {error.line()}", "warn", index=index, kind="change")

    def undo(self, ask: Callable[[KnownTrial], None]) -> None:
        """Take a trial back, or else this console's last change.

        The last one is what the engine has not answered, while there is such: not the one before.
        `ask` is called with a trial that this console has not begun, for `end_trial` to end.
        """
        index, track = self.selected, self.track
        if self._undo_unanswered(index):
            return
        trial = self._find_trial(index)
        if trial is not None:
            self._undo_trial(index, trial, ask)
            return
        history = track.undo.prune(track.in_force)
        unknown = history.find_unknown(track.in_doubt, self._key_label)
        if unknown is not None:
            self.tracks[index] = replace(track, undo=replace(history, unknown=track.in_doubt))
            self.tell(unknown, "warn")
            return
        want = history.latest
        if want is None:
            self.tracks[index] = replace(track, undo=history)
            self.refuse(history.explain_empty(), "muted")
            return
        obstacle = self.find_obstacle(want)
        if obstacle is not None:
            self.refuse(obstacle.line())
            return
        doubt = history.find_doubt(track.in_force, self._key_label)
        if doubt is None:
            self.tracks[index] = replace(track, undo=history.take())
            self.wish(want)
        else:
            self.tracks[index] = replace(track, undo=history.warn(track.in_force))
            self.tell(doubt, "warn")

    def _undo_unanswered(self, index: int) -> bool:
        """Take back the latest of what the engine has not answered; False where an undo is."""
        track = self.tracks[index]
        if track.unsent:
            track, said = take_back_unsent(track)
            self.put(index, track)
            self.tell(said, "accent", kind="change")
            return True
        sent = track.sent
        if sent is None or (sent.asked.origin == "undo" and not sent.asked.cancel):
            return False
        said = describe_sent(sent)
        if not sent.asked.cancel:
            said += ": it is undone then"
            if not sent.undo:
                self.tracks[index] = undo_sent(track, sent)
        self.tell(said, "accent", kind="change")
        return True

    def _find_trial(self, index: int) -> KnownTrial | None:
        """The trial under way; one that this console attends is its own before the engine says."""
        trial = find_trial(self.tracks[index])
        if trial is not None and trial.owner is None and index in self._attended:
            return KnownTrial(self.who, self._attended[index])
        return trial

    def _undo_trial(self, index: int, trial: KnownTrial, ask: Callable[[KnownTrial], None]) -> None:
        back = undo_of_trial(trial.number)
        if self._is_own(index, trial) or self.find_obstacle(back) is not None:
            self.wish(back)
            return
        if trial.owner is None:
            self.look(index)
        ask(trial)

    def _is_own(self, index: int, trial: KnownTrial) -> bool:
        """Whether this console has begun it: a name may be that of several consoles."""
        if index not in self._attended or trial.owner != self.who:
            return False
        number = self._attended[index]
        return number is None or trial.number in (None, number)

    def end_trial(self, asked: KnownTrial, ask: Callable[[KnownTrial], None]) -> None:
        """Take the trial back that was asked about; `ask` again where it may be another one."""
        trial = self._find_trial(self.selected)
        if trial is None:
            self.tell("nothing to undo: the trial has ended", "muted")
        elif trial != asked:
            ask(trial)
        else:
            self.wish(undo_of_trial(trial.number))

    def toggle_sweep(self) -> bool:
        """Sweep k on the live traffic, or stop the sweep under way; whether one has begun."""
        from specdeck.console.state.sweeps import Sweeps  # after the first paint

        if self._sweeps is None:
            self._sweeps = Sweeps(self, self._audit)
        return self._sweeps.toggle(self.selected)


def _is_other_life(old: EngineState | None, new: EngineState) -> bool:
    return old is not None and old.instance != new.instance


def _is_recorded(engine: MonitoredEngine) -> bool:
    from specdeck.engine.metrics.recording import ReplayedEngine

    return isinstance(engine, ReplayedEngine | RecordedEngine)
