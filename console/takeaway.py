"""What is taken along from a console: a picture of it, an incident file, a copy of its words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from textual.app import App

from specdeck.console import screenshots
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.copy import CopyDialog, FindsCopies, HasCopies
from specdeck.console.state.copies import list_figures
from specdeck.console.state.incident_files import PROGRESS_S, IncidentFiles, choose_span
from specdeck.console.state.moment import format_moment
from specdeck.engine.errors import SpecdeckError

if TYPE_CHECKING:
    from specdeck.console.state.controller import Controller
    from specdeck.console.state.copies import Copyable


def save_picture(app: App[Any], context: ConsoleContext) -> None:
    """Saves the screen as SVG where its user can find it, and says where that is."""
    svg, stamp = app.export_screenshot(), time.strftime("%Y-%m-%dT%H_%M_%S")
    name = f"{app.title}_{stamp}_{time.time_ns() // 1000 % 10**6:06}.svg"
    try:
        path = screenshots.save(
            lambda to: screenshots.write_picture(svg, to, name), context.folders()
        )
    except OSError as error:
        app.notify(f"not saved: {error}", severity="error", markup=False)
    else:
        app.notify(f"saved {path}", markup=False)


async def write_incident(
    app: App[Any],
    controller: Controller,
    context: ConsoleContext,
    incidents: IncidentFiles | None,
) -> str | None:
    """Writes what happened to the selected engine into one file, and says where that is.

    What it says of the file is returned, None where none was begun. Without `incidents` no file can
    be written from here.
    """
    track = controller.track
    if incidents is None or track.recorded:
        line = "an incident is written of a live engine, or by `specdeck incident`"
        app.notify(line, severity="warning", markup=False)
        return None
    if incidents.is_writing:
        app.notify("an incident file is being written", markup=False)
        return None
    now = controller.clock()
    span = choose_span(context.timeline.view.t, now)
    first, last = ("now" if t is None else format_moment(t, context.local, now=now) for t in span)
    taken = f"{track.name} from {first} to {last}"
    app.notify(f"writing {taken}", markup=False, timeout=3)

    def show(what: str) -> None:
        app.notify(f"incident under way: {what}", markup=False, timeout=PROGRESS_S)

    try:
        found = await incidents.write(track.url, context.folders(), span, show)
    except (SpecdeckError, OSError) as error:
        why = error.line() if isinstance(error, SpecdeckError) else str(error)
        line = f"no incident file: {why}"
        app.notify(line, severity="error", markup=False)
        return line
    line = f"incident file: {screenshots.abbreviate_home(found.path)}, {taken}"
    controller.tell(line, "accent")
    app.notify(line, markup=False, timeout=15)
    if found.left_out is not None:
        missing = f"not in the incident file: {found.left_out}"
        controller.tell(missing, "muted")
        app.notify(missing, severity="warning", markup=False, timeout=15)
    return line


def copy(app: App[Any], context: ConsoleContext) -> None:
    """Asks what to copy of the screen, and has the terminal keep it (OSC 52)."""
    screen = app.screen
    if isinstance(screen, CopyDialog):
        return

    def take(chosen: Copyable | None) -> None:
        if chosen is not None:
            app.copy_to_clipboard(chosen.text)
            app.notify(f"copied: {chosen.label}", markup=False, timeout=3)

    if isinstance(screen, FindsCopies):
        dialog = CopyDialog()
        app.run_worker(_fill(dialog, screen), group="copy", exclusive=True)
    elif isinstance(screen, HasCopies):
        dialog = CopyDialog(screen.list_copies())
    else:
        dialog = CopyDialog([*list_figures(context.timeline.track)])
    app.push_screen(dialog, take)


async def _fill(dialog: CopyDialog, screen: FindsCopies) -> None:
    dialog.fill(await screen.find_copies())
