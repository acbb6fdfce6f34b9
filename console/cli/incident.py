"""`specdeck incident`: what happened to an engine, in one file for whoever has to mend it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specdeck.console.cli.common import black_box_folder, until_signal
from specdeck.console.cli.engines import Access, access, key_option, token_option
from specdeck.console.cli.file_options import OutputFile
from specdeck.console.cli.output import draw_over, emit, log, print_lines
from specdeck.console.cli.span import read_span
from specdeck.console.state.incident_files import IncidentFile
from specdeck.engine.blackbox.falls import name_figure
from specdeck.engine.blackbox.folder import open_history
from specdeck.engine.blackbox.history import History
from specdeck.engine.client import event_loop
from specdeck.engine.client.command_options import CommandOptions, list_options
from specdeck.engine.client.webhook import VARIABLE
from specdeck.engine.config import yaml_source
from specdeck.engine.errors import EngineError, SpecdeckError, UsageError
from specdeck.engine.files import open_file, read_file
from specdeck.engine.fingerprint import secrecy
from specdeck.engine.fingerprint.secret_names import list_secrets
from specdeck.engine.incident.archive import refuse_existing
from specdeck.engine.incident.case_words import describe_dip, describe_stall
from specdeck.engine.incident.collect import Sources, collect
from specdeck.engine.incident.markdown import Clock
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.outages import list_outages
from specdeck.engine.incident.redaction import Redactor
from specdeck.engine.incident.write import Written, write_incident
from specdeck.engine.launch.registry import Record, Registry, slug
from specdeck.engine.paths import locations
from specdeck.engine.text import format_count, format_duration

if TYPE_CHECKING:
    from specdeck.engine.store.database import Store

OnProgress = Callable[[str], None]

_MOST_LOGS = 200
_LARGEST_TOKEN = 4_096
"""Bytes of its file."""


@click.command("incident")
@click.argument("engine", metavar="URL|NAME")
@click.option("--last", metavar="T", help="How much of the past, such as 30m (the default) or 2h.")
@click.option("--since", "--from", "start", metavar="T", help="Since when, such as 03:10 or -20m.")
@click.option("--until", "--to", "end", metavar="T", help="Until when; default: now.")
@click.option(
    "--output", "-o", metavar="F", type=OutputFile(),
    help="The file to write; default: incident-NAME-TIME.zip here.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; progress on stderr.")
@key_option
@token_option
def command(
    engine: str,
    last: str | None,
    start: str | None,
    end: str | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    api_key_env: str | None,
    token_file: Path | None,
) -> int:
    """Write one file about what happened: recording, story, charts, changes, checks, log.

    The engine may be down or gone: what cannot be had is named with the reason. Keys, prompts and
    answers are not in the file. `specdeck replay FILE` opens its recording.
    """
    span = read_span(last, start, end, time.time())
    if output is not None:
        refuse_existing(output, force=force)
        if not output.absolute().parent.is_dir():
            raise UsageError(f"there is no folder for {output}", remedy="give another file")
    asked = Asked(span, output, force, is_open=end is None)
    to = find_engine(engine, api_key_env=api_key_env, token_file=token_file)
    made, written = event_loop.run(_run(to, asked))
    if as_json:
        falls, dips, stalls = (
            [one.as_json() for one in found] for found in (made.falls, made.dips, made.stalls)
        )
        found = {"falls": falls, "dips": dips, "stalls": stalls}
        emit({**written.as_json(), **found, "downs": made.downs, "restarts": made.restarts})
    else:
        print_lines(*summary_lines(made, written))
    return 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What the file is to be."""

    span: Span
    output: Path | None = None
    force: bool = False
    is_open: bool = False
    """Whether the span ends now, so that an engine that is gone has the end of its recording."""
    folder: Path = Path()


@dataclass(frozen=True, slots=True)
class Known:
    """What this machine knows of an engine."""

    url: str
    name: str
    to: Access | None
    """None for one that is known by its recording alone."""
    reason: str | None = None
    """Why it is not asked."""


def find_engine(
    engine: str, *, api_key_env: str | None = None, token_file: Path | None = None
) -> Known:
    """The engine that people mean; one that is gone is known by its recording.

    Raises UsageError where nothing here knows it.
    """
    try:
        to = access(engine, api_key_env=api_key_env, token_file=token_file)
    except UsageError as error:
        try:
            with closing(open_history(black_box_folder(), engine)) as history:
                return Known(history.url, history.name, None, f"not asked: {error.line()}")
        except SpecdeckError:
            raise error from None
    return Known(to.url, to.name, to)


async def _run(known: Known, asked: Asked) -> tuple[Material, Written]:
    drawn = False

    def on_progress(what: str) -> None:
        nonlocal drawn
        if sys.stderr.isatty():
            draw_over(f"specdeck: {what}")
            drawn = True

    found: list[tuple[Material, Written]] = []

    async def work() -> int:
        found.append(await make_incident(known, asked, on_progress))
        return 0

    try:
        code = await until_signal(work(), on_interrupt=lambda: "no file was written")
    finally:
        if drawn:
            log("specdeck: collected", over=True)
    if not found:
        raise click.exceptions.Exit(code)
    return found[0]


async def make_incident(
    known: Known, asked: Asked, on_progress: OnProgress = lambda what: None
) -> tuple[Material, Written]:
    """Collects and writes; raises EngineError where nothing at all can be had of the engine."""
    with ExitStack() as stack:
        missing: dict[str, str] = {}
        history = _open_history(known, missing, stack)
        span, notes = _choose_span(asked, history)
        if history is not None and known.name == known.url:
            known = replace(known, name=history.name)
        record = _find_record(known)
        sources = Sources(
            known.url, known.name, history=history, open_store=_open_store,
            config=None if record is None or not record.config else Path(record.config),
            log=Path(record.log) if record is not None else _find_log(known, span),
            secrets=find_secrets(known.to, record), version=_version(), missing=missing,
            options=_find_options(known, record),
        )  # fmt: skip
        client = None
        try:
            if known.to is not None:
                client = known.to.client()
                sources = replace(sources, client=client)
            made = await collect(sources, span, wall=time.time, on_progress=on_progress)
        finally:
            if client is not None:
                await client.close()
        made.notes += notes
        if known.reason is not None:
            made.missing["engine"] = Redactor(sources.secrets).hide(known.reason)
        if not (made.readings or made.up or made.log is not None):
            raise EngineError(
                f"{known.url} does not answer, and nothing of it is recorded here in this time",
                remedy="give --last or --since with a time that was recorded, or record it with"
                " `specdeck record URL`",
            )
        path = asked.output or asked.folder / _file_name(known.name, span.end)
        written = await asyncio.to_thread(
            write_incident, made, path, history=history, redactor=Redactor(sources.secrets),
            force=asked.force, on_progress=on_progress,
        )  # fmt: skip
        return made, written


async def write_around(
    url: str,
    folder: Path,
    stretch: tuple[float, float | None],
    on_progress: OnProgress,
    known: Iterable[Access] = (),
) -> IncidentFile:
    """What the console's key does: a stretch of an engine's time, into a folder.

    `stretch` is in Unix seconds; None is now. `known` are engines with the keys that they were
    attached with. Raises SpecdeckError, and OSError where the folder does not take it.
    """
    to = next((one for one in known if one.url == url), None) or access(url)
    start, end = stretch
    span = Span(start, time.time() if end is None else end)
    asked = Asked(span, is_open=end is None, folder=folder)
    made, written = await make_incident(Known(url, to.name, to), asked, on_progress)
    left_out = "; ".join(f"{names}: {why}" for names, why in made.list_missing())
    return IncidentFile(written.path, left_out or None)


def _find_options(known: Known, record: Record | None) -> CommandOptions:
    """What commands have to be given for it; one that is known by its recording alone has no
    token that anybody knows of."""
    if known.to is None or (record is not None and known.to.token_file is None):
        return list_options(None, None, has_token=record is not None)
    return known.to.options


def find_secrets(to: Access | None, record: Record | None = None) -> tuple[str, ...]:
    """What this machine knows to be secret, to be looked for in the file."""
    found = [*list_secrets(os.environ), os.environ.get(VARIABLE, "")]
    if record is not None:
        with suppress(OSError, ValueError):
            found.append(read_file(record.token_path, most=_LARGEST_TOKEN).decode().strip())
        if record.config:
            found += _find_configured(Path(record.config))
    if to is not None:
        with suppress(SpecdeckError, OSError):
            token = to.token()
            found += [] if token is None else [token.reveal()]
        if to.api_key is not None:
            found.append(to.api_key.reveal())
    return tuple(one for one in found if one)


def _find_configured(path: Path) -> list[str]:
    """What a config names as secret, and the URLs that its alerts go to: who knows one may post
    to it."""
    try:
        config = yaml_source.read(path).data
    except (OSError, SpecdeckError):
        return []
    found = [*secrecy.find_secrets("", config)]
    if isinstance(alerts := config.get("alerts"), dict):
        urls = (os.environ.get(str(alerts.get("webhook_env")), ""), alerts.get("webhook"))
        found += [url for url in urls if isinstance(url, str)]
    return found


def _clock(t: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(t))


def summary_lines(made: Material, written: Written) -> list[str]:
    """What was written, for a person."""
    kept = format_count(written.readings, "reading")
    lines = [f"{written.path}  {written.size / 1e6:.1f} MB, {kept} of "
             f"{format_duration(made.span.seconds)}"]  # fmt: skip
    for fall in made.falls:
        was, now = (
            f"{value:.0%}" if fall.figure == "acceptance" else f"{value:,.1f}"
            for value in (fall.before, fall.after)
        )
        words = name_figure(fall.figure, is_of_first=fall.is_of_first)
        lines.append(f"  {words} fell from {was} to {now} at {_clock(fall.t)}")
    clock = Clock(made.span, time.localtime)
    lines += [f"  the engine {one}" for one in list_outages(made, clock)]
    passing = [(one.start, describe_dip(one)) for one in made.dips]
    passing += [(one.start, describe_stall(one, _clock)) for one in made.stalls]
    lines += [f"  {_clock(t)} {text}" for t, text in sorted(passing)]
    lines += [f"  not in it: {names}: {why}" for names, why in made.list_missing()]
    return lines


def _open_store() -> Store:
    from specdeck.engine.store.database import Store

    path = locations(os.environ).store
    if not path.exists():
        raise UsageError("nothing was ever written into this user's store")
    return Store(path)


def _open_history(known: Known, missing: dict[str, str], stack: ExitStack) -> History | None:
    try:
        history = open_history(black_box_folder(), known.url, known.name)
    except SpecdeckError as error:
        missing["recording"] = missing["recording.db"] = error.line()
        return None
    stack.callback(history.close)
    return history


def _choose_span(asked: Asked, history: History | None) -> tuple[Span, list[str]]:
    """The span that was asked for; of a recording that ended before it, its end."""
    span = asked.span
    if history is None or not asked.is_open or not history.last < span.start:
        return span, []
    moved = Span(history.last - span.seconds, history.last + 1.0)
    ago = format_duration(span.end - history.last)
    words = f"the recording ended {ago} ago: the file is of the time before that"
    log(f"specdeck: {words}")
    return moved, [words]


def _find_log(known: Known, span: Span) -> Path | None:
    """The log of an engine that has no record any more: the last one of its name that names its
    port and was written in the span or after it."""
    port = known.url.rpartition(":")[2].partition("/")[0]
    folder = locations(os.environ).logs
    try:
        named = [path for path in folder.glob("*.log") if slug(known.name) in path.name]
        recent = sorted(named, key=lambda path: path.stat().st_mtime, reverse=True)[:_MOST_LOGS]
        for path in recent:
            if path.stat().st_mtime < span.start or not port.isdecimal():
                break
            with open_file(path) as file:
                if port.encode() in file.read(200_000):
                    return path
    except OSError:
        pass
    return None


def _find_record(known: Known) -> Record | None:
    """What is written down of its start, also of one that has ended: it names config and log, and
    nothing is asked or sent by it."""
    if known.to is not None and known.to.record is not None:
        return known.to.record
    found = Registry(locations(os.environ).engines).find(known.url)
    # Of two that had its address one after the other nobody knows which is meant.
    return found if found is not None and found.url == known.url else None


def _file_name(name: str, end: float) -> str:
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(end))
    return f"incident-{slug(name.partition('//')[2] or name)}-{when}.zip"


def _version() -> str:
    from specdeck import __version__

    return __version__
