"""The console: one app, its screens and what they share."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from textual.app import App
from textual.binding import Binding
from textual.color import Color
from textual.command import Provider
from textual.css.query import NoMatches
from textual.driver import Driver
from textual.errors import NoWidget
from textual.events import Event, InputEvent, Key, MouseEvent, Paste
from textual.filter import LineFilter
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import Worker, WorkerError, WorkerFailed

from specdeck.console import keys, theme
from specdeck.console.context import ConsoleContext
from specdeck.console.held_key import HeldKey
from specdeck.console.key_order import KeyFollower, KeyOrder, Sent
from specdeck.console.screens.dialogs import Choice, Dialog, LineDialog
from specdeck.console.screens.engine_screen import DetailScreen
from specdeck.console.screens.live.screen import LiveScreen
from specdeck.console.settings import Settings
from specdeck.console.state.controller import Controller, Load, Task
from specdeck.console.state.past import SILENCE_S
from specdeck.console.state.pending import describe_left
from specdeck.console.state.timeline import Histories, Timeline
from specdeck.console.state.watches import EngineWatches
from specdeck.console.widgets.format import LocalTime
from specdeck.console.widgets.text import TONE_CLASSES, ForeignText
from specdeck.engine.errors import SpecdeckError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.notifications import SeverityLevel

    from specdeck.console.screens.startup.screen import StartupScreen
    from specdeck.console.state.black_box import BlackBoxRecorder
    from specdeck.console.state.check import CheckContext
    from specdeck.console.state.histories import BoxHistories
    from specdeck.console.state.incident_files import IncidentFiles, WriteIncident
    from specdeck.console.state.past import History
    from specdeck.engine.client.attach import MonitoredEngine
    from specdeck.engine.client.command_options import CommandOptions
    from specdeck.engine.launch.progress import StartProgress
    from specdeck.engine.operations.record import Audit
    from specdeck.engine.operations.watches import Watches


_MOUNTED_S = 1.0
"""For a screen to have its widgets, until keys come to it all the same."""

LEAVE_S = 9.0
"""For work to tidy up on leaving; longer than a sweep's giving back may take."""
_CUT_S = 1.0
"""For work that is cut short."""
_SOON_S = 0.3
"""For work of which nothing is said."""
_PASTE_NOTICE_S = 30.0
_AIMS = {
    "sweep": "a sweep has given k back",
    "steer": "the engine has answered",
    "incident": "an incident file is written",
}
"""What work of a group is finished for."""


@runtime_checkable
class _TypesAhead(Protocol):
    """A screen that is typed to before there is what takes its keys."""

    def type_ahead(self, typed: Key | Paste) -> bool:
        """Whether it takes a key or a paste that came too early."""


@runtime_checkable
class _Placed(Protocol):
    """A screen with keys of its own."""

    PLACE: ClassVar[keys.Place]


def _no_history(index: int) -> None:
    """Of a console that has no black boxes."""


def _palette() -> type[Provider]:
    from specdeck.console.palette import Palette

    return Palette


def _folders() -> Iterable[Path]:
    from specdeck.console import screenshots

    return screenshots.folders()


def _watch(controller: Controller, open_watches: Callable[[], Watches]) -> EngineWatches:
    watches = EngineWatches(controller, open_watches)
    controller.add_reader(watches.on_reading)
    return watches


def _find_screen(name: str) -> type[DetailScreen]:
    """The screen that a key names; imported when it is first opened."""
    if name == "divergence":
        from specdeck.console.screens.divergence.screen import DivergenceScreen

        return DivergenceScreen
    if name == "fingerprint":
        from specdeck.console.screens.fingerprint.screen import FingerprintScreen

        return FingerprintScreen
    if name == "requests":
        from specdeck.console.screens.requests.screen import RequestsScreen

        return RequestsScreen
    if name == "why":
        from specdeck.console.screens.why.screen import WhyScreen

        return WhyScreen
    from specdeck.console.screens.tuning.screen import TuningScreen

    return TuningScreen


def _describe_wait(groups: Collection[str]) -> str:
    """What leaving waits for, and how it is had at once.

    >>> _describe_wait({"sweep"})
    'leaving once a sweep has given k back, in 9 s at the latest: Ctrl-C leaves at once'
    """
    aims = [aim for group, aim in _AIMS.items() if group in groups]
    until = " and ".join(aims) or "what is under way has ended"
    return f"leaving once {until}, in {LEAVE_S:g} s at the latest: Ctrl-C leaves at once"


async def _wait_for(worker: Worker[Any]) -> None:
    """Waits for its end, whatever that is: of a defect Textual has told the console."""
    with suppress(WorkerError):
        await worker.wait()


class _Work(Awaitable[None]):
    """Work of a worker that may be cancelled before it begins it: `unbegun` has it until then."""

    def __init__(
        self,
        work: Coroutine[Any, Any, None],
        run: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]],
        unbegun: set[_Work],
    ) -> None:
        self._work = work
        self._run = run
        self._unbegun = unbegun
        unbegun.add(self)

    def __await__(self) -> Generator[Any, None, None]:
        if self in self._unbegun:
            self._unbegun.discard(self)
            yield from self._run(self._work).__await__()

    def close(self) -> None:
        """Leave it undone; Python would warn of it on stderr otherwise."""
        self._unbegun.discard(self)
        self._work.close()


class Console(App[str]):
    """Shows engines; returns `stop` or `leave` for an engine that it was told it owns."""

    # The first screen is here from the start, so its style sheet is not one that comes with it.
    CSS_PATH = ["console.tcss", "screens/live/screen.tcss", "screens/startup/screen.tcss"]
    TITLE = "specdeck"
    COMMANDS = {_palette}
    COMPONENT_CLASSES = TONE_CLASSES
    FOREIGN_TEXT: ClassVar[LineFilter] = ForeignText()
    BINDINGS = [
        Binding("ctrl+q", "quit", show=False, priority=True),
        # Dialogs hide all other keys from the app, and a line would copy what it has selected.
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        *keys.bindings(),
    ]

    def __init__(
        self,
        engines: Sequence[MonitoredEngine],
        *,
        settings: Settings | None = None,
        progress: AsyncIterator[StartProgress] | None = None,
        start_notice: Sequence[str] = (),
        owned: bool = False,
        load: Load | None = None,
        who: str = "operator",
        audit: Audit | None = None,
        watches: Callable[[], Watches] | None = None,
        check: CheckContext | None = None,
        themes: Sequence[Path] = (),
        black_boxes: Path | None = None,
        opening: Callable[[], Awaitable[None]] | None = None,
        incident: WriteIncident | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        local: LocalTime = time.localtime,
        folders: Callable[[], Iterable[Path]] | None = None,
        driver_class: type[Driver] | None = None,
        histories: Histories | None = None,
        command_options: Mapping[str, CommandOptions] | None = None,
    ) -> None:
        """Set up the app; nothing runs yet.

        `progress` is the start of the only engine, shown until it is ready, below the lines of
        `start_notice`; its name may change until then. `owned` asks
        on leaving whether to stop the engine. `audit` remembers every change that an
        engine applied; a SpecdeckError that it raises is shown. `watches` opens what tells of
        drift and alerts. `themes` are the folders of the user's own themes, `folders` those
        that a picture of the screen may be saved in. Engines are recorded in `black_boxes`, unless
        it is None or the settings say not to, and their past is found there; `histories` tells it
        instead. `check` is what the check asks its engines with. `incident`
        writes an incident file into the first of `folders` that takes it. `opening` is asked after
        the first paint; a SpecdeckError that it raises closes the console and is its `failure`.
        `command_options` are what commands have to be given for engines, by their URLs.
        """
        # Before Textual's own set-up, which asks for it.
        self.settings = settings or Settings()
        super().__init__(driver_class=driver_class)
        self._line_filters = self._choose_filters()
        self.owned = owned
        self.progress = progress
        self._start_notice = tuple(start_notice)
        self.failure: SpecdeckError | None = None
        """What the start or the opening raised."""
        self.crash: Exception | None = None
        """The defect that ended the console."""
        self._opening = opening
        self._write_incident = incident
        self._incidents: IncidentFiles | None = None
        self._leaving = False
        self.parting: tuple[str, ...] = ()
        """What came of work while the console was left, for whoever opened it."""
        self._question: Dialog | None = None
        """What leaving asks, the last time that it did."""
        self._hurry = asyncio.Event()
        self._tasks: set[asyncio.Future[None]] = set()
        """The controller's work."""
        self._unbegun: set[_Work] = set()
        self.shown = asyncio.Event()
        """Whether the first frame is on the terminal."""
        keymap = self.settings.keymap
        self.controller = Controller(
            engines,
            spawn=self._spawn,
            who=who,
            interval=self.settings.interval,
            audit=audit,
            load=load,
            key_label=lambda name: keys.key_label(name, keymap),
            until_shown=self.shown.wait,
            clock=clock,
            steady=steady,
            sleep=sleep,
        )
        self.recorder = self._open_recorder(black_boxes)
        """Writes the engines' black boxes; None where nothing is recorded."""
        self.context = ConsoleContext(
            self._open_timeline(histories or self._find_histories(black_boxes)),
            owned=owned,
            clock=clock,
            local=local,
            keys=keys.available(engines=len(engines) > 1, load=load is not None),
            keymap=keymap,
            folders=folders or _folders,
            check=check,
            watches=None if watches is None else _watch(self.controller, watches),
            command_options=command_options or {},
            slow=self.settings.slow,
        )
        self.key_order = KeyOrder(self, self._find_key_target)
        """Has each key, paste and click wait for what the one before it does."""
        self.held_key = HeldKey()
        """Has a key that leads to another screen do no more there."""
        self._selected = 0
        """The engine that the theme was chosen for."""
        self._take_themes(themes)

    def _open_timeline(self, histories: Histories) -> Timeline:
        silence_s = max(SILENCE_S, 3 * self.settings.interval)
        return Timeline(self.controller, histories, silence_s=silence_s)

    def _open_recorder(self, folder: Path | None) -> BlackBoxRecorder | None:
        if folder is None or not self.settings.record:
            return None
        from specdeck.console.state.black_box import BlackBoxRecorder

        days, megabytes = self.settings.record_days, self.settings.record_mb
        return BlackBoxRecorder(self.controller, folder, days=days, megabytes=megabytes)

    def _find_histories(self, folder: Path | None) -> Histories:
        if folder is None:
            return _no_history
        urls = [one.url for one in self.controller.engines]
        found: list[BoxHistories] = []

        def find(index: int) -> History | None:
            from specdeck.console.state.histories import BoxHistories  # after the first paint

            if not found:
                found.append(BoxHistories(folder, urls))
            return found[0](index)

        return find

    def _take_themes(self, folders: Sequence[Path]) -> None:
        """Know the shipped themes and those in `folders`."""
        found = theme.load(theme.SHIPPED, *folders)
        self.theme_names = tuple(one.name for one in found.themes)
        self.broken_themes = found.broken
        for one in found.themes:
            self.register_theme(one)

    def _spawn(self, work: Coroutine[Any, Any, None], group: str) -> Task:
        return self.run_worker(_Work(work, self._cancel_once, self._unbegun), group=group)

    async def _cancel_once(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work; leaving cancels all of it, what tidies up after a first one as well."""
        task, cancelled = asyncio.ensure_future(work), False
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                if not cancelled:
                    task.cancel()
                cancelled = True
        task.result()

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work to its end, on leaving as well, unless that is cut short."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def finish_work(self, on_wait: Callable[[str], None] = lambda line: None) -> None:
        """Waits for the work that leaving has cancelled, which may ask engines as it tidies up.

        `on_wait` is given a line that says for what, unless that is soon done. What takes longer
        than `LEAVE_S`, or than the patience of who calls `hurry`, is cut short: the lease of a
        sweep gives k back then. `parting` has what no engine has answered by then.
        """
        await self._end_work(on_wait)
        if self.return_value != "stop":
            left = ((one.name, describe_left(one)) for one in self.controller.tracks)
            self.parting = (*self.parting, *(f"{name}: {said}" for name, said in left if said))

    async def _end_work(self, on_wait: Callable[[str], None]) -> None:
        ends = {asyncio.create_task(_wait_for(one)): one.group for one in self.workers}
        if not ends:
            return
        _, late = await asyncio.wait(ends, timeout=_SOON_S)
        if late:
            on_wait(_describe_wait({ends[one] for one in late}))
            hurry = asyncio.create_task(self._hurry.wait())
            either: set[asyncio.Future[Any]] = {
                asyncio.gather(*late, return_exceptions=True), hurry,
            }  # fmt: skip
            await asyncio.wait(either, timeout=LEAVE_S, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            late = {one for one in late if not one.done()}
        if late:
            for one in (*self._tasks, *late):
                one.cancel()
            await asyncio.wait(late, timeout=_CUT_S)

    def hurry(self) -> None:
        """Have what `finish_work` waits for cut short."""
        self._hurry.set()

    def _handle_exception(self, error: Exception) -> None:
        """Keep a defect for whoever opened the console, and end.

        A screen that opens while the console closes finds none of its widgets: no defect.
        """
        cause = error.error if isinstance(error, WorkerFailed) else error
        if self._leaving and isinstance(cause, NoMatches):
            return
        if self.crash is None:
            self.crash = cause if isinstance(cause, Exception) else error
        super()._handle_exception(error)

    @property
    def alt_keys(self) -> frozenset[str]:
        """Keys with alt that the user's keymap names; without them alt is the escape key."""
        named = (one.strip() for keys in self.settings.keymap.values() for one in keys.split(","))
        return frozenset(one for one in named if one.startswith("alt+"))

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to end."""
        return self._leaving

    @property
    def unanswered(self) -> tuple[str, ...]:
        """What sweeps may have left turned, and nobody has answered: a line for each engine that
        is not to be stopped."""
        if self.return_value == "stop":
            return ()
        return tuple(
            f"{track.name}: {track.left.line()}"
            for track in self.controller.tracks
            if track.left is not None
        )

    def exit(
        self, result: str | None = None, return_code: int = 0, message: RenderableType | None = None
    ) -> None:
        """Leave: from here on widgets go before the screens that they are on."""
        self._leaving = True
        super().exit(result, return_code, message)

    async def on_event(self, event: Event) -> None:
        """As Textual does, but the end waits for no key that came before it and is not handled."""
        if isinstance(event, InputEvent | Paste):
            if self._leaving or (not event.is_forwarded and self.key_order.hold(event)):
                return
            await self._wait_for_screen()
            if not self.screen_stack:  # it ends without having been told to
                return
            if not event.is_forwarded:
                await self._send(event)
                return
        await super().on_event(event)

    async def _send(self, event: Sent) -> None:
        """To the widget that it is for, unless it was meant for a dialog that did not open, or for
        the screen before."""
        if self.held_key.is_spent(event, self.screen, is_typed=self._is_typed(event)):
            return
        if isinstance(event, Key | Paste) and self._is_typed_ahead(event):
            return
        target = self._find_target(event)
        await super().on_event(event)
        self.key_order.begin(event, target)

    def _is_typed(self, event: Sent) -> bool:
        """Whether it goes onto a line as it is, where it answers nothing."""
        has_line = isinstance(self.focused, Input) or isinstance(self.screen, LineDialog)
        return has_line and isinstance(event, Key) and event.is_printable

    def _is_typed_ahead(self, typed: Key | Paste) -> bool:
        screen = self.screen
        return self.focused is None and isinstance(screen, _TypesAhead) and screen.type_ahead(typed)

    def _find_target(self, event: Sent) -> MessagePump:
        if not isinstance(event, MouseEvent):
            return self._find_key_target()
        try:
            return self.mouse_captured or self.get_widget_at(event.x, event.y)[0]
        except NoWidget:
            return self.screen

    @property
    def message_queue_size(self) -> int:
        """What is to be handled, with the input that waits for a key."""
        return super().message_queue_size + self.key_order.size

    def _find_key_target(self) -> MessagePump:
        return (self.focused or self.screen) if self.screen_stack else self

    async def on_key_follower(self, follower: KeyFollower) -> None:
        """Handle what has waited for the key, up to the next one."""
        if self.key_order.take(follower):
            while (event := self.key_order.next()) is not None:
                await self.on_event(event)

    async def _wait_for_screen(self) -> None:
        """A key that is typed ahead is the next screen's, whose widgets may not be there yet."""
        until = time.monotonic() + _MOUNTED_S
        while self.screen_stack and not self.screen.is_mounted and time.monotonic() < until:  # noqa: ASYNC110  # of whichever screen is there then
            await asyncio.sleep(0.01)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """As Textual does, with a notice that is over at its time."""
        from textual.notifications import Notify

        from specdeck.console.notice import Notice

        lasts = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(Notice(message, title, severity, lasts, markup=markup)))

    def _fatal_error(self) -> None:
        """End without Textual's report: it shows local variables, and so tokens and prompts."""
        self.panic()

    def get_driver_class(self) -> type[Driver]:
        """The driver that leaves out unchanged cells, unless another one was asked for."""
        from specdeck.console.terminal.driver import SparingDriver

        return SparingDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, the one that no text of others gets past, and a poor terminal's."""
        return [*super().get_line_filters(), *self._line_filters]

    def _choose_filters(self) -> list[LineFilter]:
        found: list[LineFilter] = [self.FOREIGN_TEXT]
        if self.settings.ascii or self.no_color:
            from specdeck.console.terminal.plain import AsciiText, WithoutColour

            if self.settings.ascii:
                found.append(AsciiText())
            if self.no_color:
                found.append(WithoutColour(self._plain_backgrounds))
        return found

    def _plain_backgrounds(self) -> frozenset[str]:
        """The backgrounds that mean nothing; without colour they are the terminal's own."""
        one = self.current_theme
        named = (one.background, one.surface, one.panel)
        return frozenset(Color.parse(name).monochrome.hex6.lower() for name in named if name)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables for themes that do not name them."""
        return theme.defaults()

    def get_default_screen(self) -> Screen[None]:
        """The start-up screen while the engine starts, else the live screen."""
        if self.progress is None:
            return LiveScreen(self.controller, self.context)
        from specdeck.console.screens.startup.screen import StartupScreen

        return StartupScreen(
            self.controller.engine, self.progress, self.context, self._start_notice
        )

    def on_load(self) -> None:
        """Take the theme before there is anything to paint a second time."""
        self.theme = self._wanted_theme if self._wanted_theme in self.available_themes else "dark"
        if self.settings.slow:
            self.animation_level = "none"

    @property
    def _wanted_theme(self) -> str:
        """The theme of the selected engine, else the one of the settings."""
        one = self.controller.track
        own = theme.find_theme(self.settings.engine_themes, one.name, one.url)
        if own is None and self.settings.theme == theme.AUTO:
            return theme.choose_theme(os.environ, self.console.color_system)
        return own or self.settings.theme

    def _follow_selection(self) -> None:
        """Another engine may have another theme: production looks like production."""
        if self._selected != self.controller.selected:
            self._selected = self.controller.selected
            self.use_theme(self._wanted_theme)

    def on_mount(self) -> None:
        """Take the user's keys, and say what in their files could not be used."""
        self.set_keymap(self.settings.keymap)
        if self._wanted_theme != self.theme:
            self.use_theme(self._wanted_theme)
        if self.settings.engine_themes:
            self.controller.subscribe(self._follow_selection)
        for line in self.broken_themes:
            self.notify(f"left out: {line}", severity="warning", markup=False)

    def on_ready(self) -> None:
        """The screen is laid out, but what it shows may still be on its way to the terminal."""
        self.screen.call_after_refresh(self._ask_engines)

    def _ask_engines(self) -> None:
        """Begin what waits for the first frame."""
        gc.enable()  # see `cli.common.defer_collection`
        self.shown.set()
        if self._opening is not None:
            self.run_worker(self._open(self._opening), group="opening")

    async def _open(self, opening: Callable[[], Awaitable[None]]) -> None:
        try:
            await opening()
        except SpecdeckError as error:
            self.failure = error
            self.exit()

    def on_unmount(self) -> None:
        for one in tuple(self._unbegun):
            one.close()

    def on_paste_stalled(self) -> None:
        """Say why no key does anything."""
        line = "a paste has not ended: keys count as pasted until it does; esc drops it"
        self.notify(line, severity="warning", timeout=_PASTE_NOTICE_S, markup=False)

    def on_paste_dropped(self) -> None:
        """Say that they do again."""
        self.notify("the paste that did not end is dropped: keys count again", markup=False)

    def on_startup_screen_ready(self) -> None:
        """The engine is called by its name, and followed."""
        self.controller.take_names()
        self.controller.start()

    def on_startup_screen_done(self) -> None:
        """Fly it, unless a dialog came over the start-up screen: that tells again."""
        if len(self.screen_stack) == 1:
            self.push_screen(LiveScreen(self.controller, self.context))

    def on_startup_screen_raised(self, message: StartupScreen.Raised) -> None:
        """Keep the error for whoever opened the console."""
        self.failure = message.error

    def use_theme(self, name: str) -> None:
        """Switch to a theme; an unknown one is named and the first shipped one taken."""
        if name not in self.available_themes:
            known = ", ".join(self.theme_names)
            line = f"there is no theme {name}: choose from {known}"
            self.notify(line, severity="warning", markup=False)
            name = "dark"
        self.theme = name

    def action_next_theme(self) -> None:
        """The theme after this one."""
        names = self.theme_names
        now = names.index(self.theme) if self.theme in names else -1
        self.use_theme(names[(now + 1) % len(names)])
        self.notify(f"theme {self.theme}", timeout=2, markup=False)

    def action_save(self) -> None:
        """Save the screen as SVG where its user can find it, and say where that is."""
        from specdeck.console import takeaway

        takeaway.save_picture(self, self.context)

    def action_incident(self) -> None:
        """Write what happened to this engine into one file, and say where that is."""
        self.run_worker(_Work(self._take_incident(), self._finish, self._unbegun), group="incident")

    async def _take_incident(self) -> None:
        from specdeck.console import takeaway
        from specdeck.console.state.incident_files import IncidentFiles

        if self._incidents is None and self._write_incident is not None:
            self._incidents = IncidentFiles(self._write_incident)
        line: str | None = "no incident file: leaving cut it short"
        try:
            line = await takeaway.write_incident(
                self, self.controller, self.context, self._incidents
            )
        finally:
            if self._leaving and line is not None:
                self.parting = (*self.parting, line)

    def action_copy(self) -> None:
        """Ask what to copy of the screen, and have the terminal keep it (OSC 52)."""
        from specdeck.console import takeaway

        takeaway.copy(self, self.context)

    def action_command_palette(self) -> None:
        """Search for what can be done, unless that is under way."""
        from textual.command import CommandPalette

        from specdeck.console.palette import PaletteScreen

        if not any(isinstance(one, CommandPalette) for one in self.screen_stack):
            self.push_screen(PaletteScreen())

    def action_redraw(self) -> None:
        """Draw everything anew, after something else wrote to the terminal."""
        # The driver takes this signal for a resize and forgets what it believes is shown.
        signal.raise_signal(signal.SIGWINCH)
        self.screen.refresh(repaint=True, layout=True)

    def action_open_screen(self, name: str) -> None:
        """Look at the engine in another way, in the place of whatever lies over the live screen."""
        wanted = _find_screen(name)
        while isinstance(self.screen, DetailScreen) and isinstance(
            self.screen_stack[-2], DetailScreen
        ):
            self.screen.leave()
        if isinstance(self.screen, wanted):
            return
        found = wanted(self.controller, self.context)
        if isinstance(self.screen, DetailScreen):
            self.switch_screen(found)
        else:
            self.push_screen(found)

    def keys_on(self, screen: Screen[Any]) -> tuple[keys.Key, ...]:
        """The keys that mean something on a screen."""
        place = screen.PLACE if isinstance(screen, _Placed) else "start"
        return keys.of(place, self.context.keys)

    async def run_key(self, action: str) -> None:
        """Run an action of the key table."""
        await self.run_action(action, self.screen)

    def action_help(self) -> None:
        """Every key of the screen."""
        from specdeck.console.screens.dialogs import HelpScreen

        self.push_screen(HelpScreen(self.keys_on(self.screen), self.settings.keymap))

    def leave(self) -> None:
        """Leave, after asking what becomes of an engine that was started here."""
        if not self.owned or self.screen.has_class("-failed"):
            self.exit()
            return
        controller = self.controller
        self._question = _quit_dialog(
            controller.engines[0],
            has_load=controller.load is not None,
            opened_by=self.context.key_names("console.quit"),
        )
        self.push_screen(self._question, lambda choice: self.exit(choice) if choice else None)

    async def action_interrupt(self) -> None:
        """Leave from wherever it is, unless text is selected with the mouse: that is copied.

        It is selected no more then, so that the next time leaves. Where leaving asks, a further
        one is as a signal that ends the console: an engine that was started here runs on.
        """
        if not self.screen.get_selected_text():
            if self.screen is self._question:
                self.exit("leave")
            else:
                self.leave()
            return
        self.screen.action_copy_text()
        self.screen.clear_selection()
        self.notify("copied: what was selected; Ctrl-C again leaves", markup=False, timeout=3)

    async def action_quit(self) -> None:
        """Leave; asks first where there is something to decide."""
        if self.screen is not self._question:
            self.leave()


def _quit_dialog(engine: MonitoredEngine, *, has_load: bool, opened_by: Collection[str]) -> Dialog:
    load = f" Its load ends here: `specdeck load {engine.name}` makes more." if has_load else ""
    return Dialog(
        f"{engine.name} was started here. Stop it?",
        f"Left running, it serves on at {engine.url}, and "
        f"`specdeck ps`, `attach` and `stop` find it again.{load}",
        (
            Choice("leave", "l", "Leave it running and quit"),
            Choice("stop", "s", "Stop the engine and quit"),
            Choice("", "escape", "Stay here"),
        ),
        opened_by,
    )
