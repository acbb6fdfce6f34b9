"""`specdeck fingerprint`: names what serves, pins it, and tells what changed since."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from specdeck.console.cli.common import Whole, metrics_address_option, until_signal
from specdeck.console.cli.engines import Access, access, key_option
from specdeck.console.cli.expectations import Expectations, open_fingerprints, webhook_option
from specdeck.console.cli.file_options import OutputFile
from specdeck.console.cli.gauges_file import GaugesFile
from specdeck.console.cli.output import emit, log, print_lines, print_verdict
from specdeck.console.cli.print_queue import work_beside_output
from specdeck.engine.client import event_loop
from specdeck.engine.client.address import LOOPBACK
from specdeck.engine.client.webhook import Webhook
from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.compare import Comparison, compare, leaves
from specdeck.engine.fingerprint.export import Gauges
from specdeck.engine.fingerprint.fingerprint import STALLED_S, Fingerprint, Progress
from specdeck.engine.fingerprint.name import is_name, layer_of, own_part
from specdeck.engine.fingerprint.name_check import DOUBTS, check_names
from specdeck.engine.fingerprint.pins import PinFile, read_pin
from specdeck.engine.operations.drift import (
    Drift,
    DriftEvent,
    DriftWatcher,
    FactsRead,
    FactsUnavailable,
    PinMoved,
    PinUnread,
)
from specdeck.engine.operations.fingerprint import (
    Fingerprints,
    Moment,
    NameVerification,
    Verification,
)
from specdeck.engine.operations.watches import post_events
from specdeck.engine.text import format_table, format_value, parse_duration

_Side = tuple[str, Fingerprint | None]
"""One side of a diff as it was given, and its fingerprint where that is kept."""

_MOMENT = re.compile(r"@(\d+)")
_MOST_DIGITS = 18
_STALL_LINE_S = 15.0
"""Between two lines on stderr about an engine whose reading of its weights stands still."""
_PROBE_LINES = 4
"""On stderr while an engine is probed, which takes a minute under load."""

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
behaviour_option = click.option(
    "--behaviour/--no-behaviour",
    default=None,
    help="Also ask the probe set: how the engine behaves, not only what it is.",
)


def refuse_empty_expectation(
    _context: click.Context, _parameter: click.Parameter, given: str | Path | None
) -> str | Path | None:
    """What was given to `--expect`; raises UsageError for the empty string."""
    # An unset variable of a script must not come to mean the default pin.
    if given is not None and str(given).strip() in ("", "."):
        raise UsageError("--expect names no file", remedy="leave it out for the engine's own pin")
    return given


expect_option = click.option(
    "--expect",
    metavar="F",
    callback=refuse_empty_expectation,
    help="A pin's file, or a name such as sd1:p0f3a… (no sd1:x…); default: the pin.",
)


@click.group("fingerprint", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Name the serving path, pin it, and report what changed.

    Three layers: sd1:b… what was built, sd1:p… the path that serves (it moves with k),
    sd1:x… what it does. A tilde marks a name of facts that are not all known.
    """


@command.command("show")
@click.argument("engine", metavar="URL")
@json_option
@behaviour_option
@click.option("--history", is_flag=True, help="Every recorded fingerprint of this engine.")
@key_option
def show(
    engine: str, as_json: bool, behaviour: bool | None, history: bool, api_key_env: str | None
) -> int:
    """Show the names of an engine, and every fact behind them."""
    to, fingerprints = _open(engine, api_key_env)
    if history:
        print_history(event_loop.run(fingerprints.moments(to.url)), as_json=as_json)
        return 0
    if behaviour:
        found = event_loop.run(_fetch(fingerprints, to.url, behaviour=True))
    else:
        found = event_loop.run(fingerprints.fetch(to.url))
    if not found.progress.finished:
        log(f"specdeck: the engine is {found.progress.line()}: the names will move once")
    if as_json:
        emit(found.as_json())
        return 0
    facts = [f"{place} = {format_value(value)}" for place, value in leaves(found.facts)]
    print_lines(*fingerprint_lines(found), "", *facts)
    return 0


@command.command("pin")
@click.argument("engine", metavar="URL")
@click.option(
    "--expect",
    "--output",
    "-o",
    "output",
    metavar="F",
    type=OutputFile(),
    callback=refuse_empty_expectation,
    help="The file to write, such as one beside an eval suite; default: specdeck's own folder.",
)
@json_option
@behaviour_option
@key_option
def pin(
    engine: str, output: Path | None, as_json: bool, behaviour: bool | None, api_key_env: str | None
) -> int:
    """Keep the fingerprint of an engine as what is expected of it."""
    to, fingerprints = _open(engine, api_key_env)
    found = event_loop.run(_fetch(fingerprints, to.url, behaviour=bool(behaviour)))
    written = event_loop.run(fingerprints.pin(found, output))
    if as_json:
        emit(written.as_json())
    else:
        print_lines(*fingerprint_lines(found), f"pinned     {written.place}")
    return 0


@command.command("verify")
@click.argument("engine", metavar="URL")
@expect_option
@json_option
@behaviour_option
@click.option("--every", metavar="T", help="Repeat the verification, such as every 60s.")
@click.option(
    "--metrics-port",
    type=Whole(1, 65535),
    metavar="P",
    help="Serve the outcome to Prometheus on this port, with --every.",
)
@metrics_address_option
@click.option(
    "--metrics-file",
    type=OutputFile(),
    metavar="F",
    help="Write it for node_exporter's textfile collector.",
)
@webhook_option
@key_option
def verify(
    engine: str,
    expect: str | None,
    as_json: bool,
    behaviour: bool | None,
    every: str | None,
    metrics_port: int | None,
    metrics_address: str,
    metrics_file: Path | None,
    webhook_env: str | None,
    api_key_env: str | None,
) -> int:
    """Compare an engine with its pin; exits with 1 when it is not what is expected.

    A drift is posted to the webhook, if one is set. With --every it goes on until it is
    interrupted.
    """
    name = None if expect is None else expected_name(expect)
    if metrics_port is not None and every is None:
        raise UsageError("--metrics-port requires --every", remedy="give --every as well")
    if name is not None and (every or metrics_file or webhook_env):
        what = "--every" if every is not None else "--metrics-file or --webhook-env"
        raise UsageError(f"{what} requires facts to compare with", remedy="give a pin's file")
    every_s = None if every is None else parse_duration(every)
    to, fingerprints = _open(engine, api_key_env)
    if name is not None:
        return event_loop.run(_verify_name(fingerprints, to.url, name, as_json=as_json))
    webhook = Expectations(webhook_env=webhook_env).open_webhook()
    exports = Exports(metrics_port, metrics_file, webhook, metrics_address)

    async def fetch(pinned: Fingerprint | None) -> Fingerprint:
        if behaviour and pinned is not None:
            _require_behaviour(pinned)
        probes = _is_probed(pinned) if behaviour is None else behaviour
        here, url = fingerprints, to.url
        if to.record is not None and to.record.name == engine:  # it may be elsewhere by now
            again, here = _open(engine, api_key_env)
            url = again.url
        return await _fetch(here, url, behaviour=probes, beside=pinned)

    watcher = DriftWatcher(fetch, _pin_file(fingerprints, to, expect))

    async def run() -> int:
        await watcher.open()
        return await verify_on(watcher, every_s, exports, url=to.url, as_json=as_json)

    work = run()
    if every_s is not None:  # whoever has seen enough of a series ends it
        work = work_beside_output(work, ends_at=(BrokenPipeError,))
    return event_loop.run(until_signal(work))


@command.command("diff")
@click.argument("one", metavar="URL|PIN|@N")
@click.argument("other", metavar="[URL|PIN|@N]", required=False)
@expect_option
@json_option
@behaviour_option
@key_option
def diff(
    one: str,
    other: str | None,
    expect: str | None,
    as_json: bool,
    behaviour: bool | None,
    api_key_env: str | None,
) -> int:
    """Tell what differs between two engines, pins or moments (@N of show --history).

    With one engine alone: since its pin. Beside a side that was probed for its behaviour an engine
    is probed too, unless --no-behaviour is given. Exits with 1 when something differs.
    """
    if other is not None and expect is not None:
        raise UsageError("--expect stands for the second side", remedy="give one of them")
    second = expect if other is None else other
    kept = event_loop.run(_read_kept(one))
    if second is not None:
        sides = (one, kept), (second, event_loop.run(_read_kept(second)))
    elif kept is not None:
        remedy = "give an engine, another pin or @N beside it"
        raise UsageError(f"nothing to compare {one} with", remedy=remedy)
    else:
        to, fingerprints = _open(one, api_key_env)
        sides = (one, read_pin(_find_pin(fingerprints, to))), (one, None)
    probes = any(_is_probed(each) for _, each in sides) if behaviour is None else behaviour
    before, after = event_loop.run(_fetch_sides(sides, behaviour=probes, api_key_env=api_key_env))
    if behaviour:
        _require_behaviour(before, after)
    found = Verification(compare(before, after))
    lines = partial(comparison_lines, found.comparison, full=True)
    print_verdict(found.as_json(), lines, as_json=as_json)
    return 0 if found.comparison.same else 1


@dataclass(frozen=True, slots=True)
class Exports:
    """Where the outcome of each verification goes besides stdout."""

    port: int | None = None
    file: Path | None = None
    webhook: Webhook | None = None
    address: str = LOOPBACK
    """What `port` is bound on."""

    async def open_gauges(self, url: str) -> Gauges | None:
        """Gauges that are served already; None where nobody asked for them."""
        if self.port is None and self.file is None:
            return None
        gauges = Gauges(url)
        if self.port is not None:
            await gauges.serve(self.port, self.address)
        return gauges


async def verify_on(
    watcher: DriftWatcher,
    every_s: float | None,
    exports: Exports,
    *,
    url: str,
    as_json: bool,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> int:
    """One verification, or one every `every_s` seconds for ever; the exit code."""
    gauges = await exports.open_gauges(url)
    file = None
    if exports.file is not None:
        after = None if every_s is None else "verification"
        file = GaugesFile(exports.file, after=after, must_begin=True)
    while True:
        events = [event async for event in watcher.verify(time.time(), url)]
        if gauges is not None:
            show_in_gauges(gauges, events)
            if file is not None:
                file.write(gauges)
        for event in events:
            if isinstance(event, FactsRead):
                print_verification(event, as_json=as_json, is_dated=every_s is not None)
            elif isinstance(event, FactsUnavailable) and every_s is None:
                raise event.error
            elif isinstance(event, PinMoved | PinUnread | FactsUnavailable):
                log(f"specdeck: {event.line}")
        async for failure in post_events(exports.webhook, events):
            log(f"specdeck: {failure.line}")
        if every_s is None:
            return 0 if is_as_pinned(events) else 1
        await sleep(every_s)


def is_as_pinned(events: Sequence[DriftEvent]) -> bool:
    """Whether a verification found the engine as its pin says."""
    named = (event.comparison for event in events if isinstance(event, FactsRead))
    return any(comparison is not None and comparison.same for comparison in named)


def show_in_gauges(gauges: Gauges, events: Sequence[DriftEvent]) -> None:
    """A verification for Prometheus."""
    for event in events:
        if isinstance(event, FactsUnavailable):
            gauges.show_failure()
        elif isinstance(event, FactsRead) and event.comparison is not None:
            gauges.show(event.comparison, event.fingerprint.t)
        elif isinstance(event, Drift) and not event.comparison.same:
            gauges.count_drift()


def print_verification(event: FactsRead, *, as_json: bool, is_dated: bool) -> None:
    """A verification on stdout; a dated one is a line among others."""
    if event.comparison is None:
        return
    lines = comparison_lines(event.comparison, full=False)
    data = Verification(event.comparison, event.pin).as_json()
    if not is_dated:
        print_verdict(data, lambda: lines, as_json=as_json)
    elif as_json:
        emit(data)
    else:
        print_lines(f"{_clock(event.fingerprint)}  {'; '.join(lines)}")


def print_history(moments: Sequence[Moment], *, as_json: bool) -> None:
    """The fingerprints of one engine that were noted."""
    if as_json:
        emit([moment.as_json() for moment in moments])
        return
    rows = []
    for moment in moments:
        found = moment.fingerprint
        behaviour = format_value(found.names["behaviour"])
        rows.append((f"@{moment.number}", _clock(found), found.build, found.path, behaviour))
    print_lines(*format_table(("MOMENT", "SEEN", "BUILD", "PATH", "BEHAVIOUR"), rows))


def _clock(found: Fingerprint) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.t))


def fingerprint_lines(found: Fingerprint) -> list[str]:
    """A fingerprint for a person: its names, and what they do not cover."""
    behaviour = found.behaviour
    lines = [f"build      {found.build}", f"path       {found.path}"]
    if behaviour is not None:
        steady = f"{behaviour.agreement:.1%} of answers agree over {behaviour.runs} runs"
        lines.append(f"behaviour  {behaviour.name}  ({steady}, step {behaviour.step:g})")
        lines += [f"missing    {reason}" for reason in behaviour.missing]
    lines.append(f"vLLM's own {format_value(found.system_fingerprint)}")
    lines += [f"partial    {one.line()}" for one in found.unread]
    return lines


def comparison_lines(found: Comparison, *, full: bool) -> list[str]:
    """A comparison for a person: the verdict first, then what moved; every fact if `full`."""
    lines = found.lines()
    before, after = found.before.names, found.after.names
    for layer, moved in found.layers.items():
        if moved:
            lines.append(f"{layer:9}  {before[layer]} → {after[layer]}")
    lines += [probe.line() for probe in found.probes]
    for one in found.differences if full else ():
        lines += [f"- {one.fact} = {format_value(one.before)}"] if one.kind != "added" else []
        lines += [f"+ {one.fact} = {format_value(one.after)}"] if one.kind != "removed" else []
    return lines


def is_file(side: str) -> bool:
    """Whether one side of a diff is a pin's file and not an engine.

    >>> is_file("prod.json"), is_file("pins/prod"), is_file("http://h:1/a"), is_file("h:1/v1")
    (True, True, False, False)
    """
    if "://" in side:
        return False
    first, separator, _ = side.partition("/")
    looks = side.endswith(".json") or (bool(separator) and ":" not in first)
    return looks or Path(side).is_file()


def expected_name(expect: str) -> str | None:
    """The name that `expect` is; None for a file.

    Raises UsageError for a part of a name, and for a behaviour's: equal answers have several.
    """
    if not is_name(expect):
        if "sd1:" in expect:
            raise UsageError(f"{expect!r} is not a whole name", remedy="give all 16 digits of it")
        return None
    if layer_of(own_part(expect)) == "behaviour":
        raise UsageError(
            "a behaviour's name is of rounded values, and may move when nothing did",
            remedy="give a pin's file: it carries the tolerance",
        )
    return own_part(expect)


async def _verify_name(
    fingerprints: Fingerprints, url: str, expected: str, *, as_json: bool
) -> int:
    layer = layer_of(expected)
    assert layer is not None  # it is a name
    seen = await _fetch(fingerprints, url)
    found = NameVerification.of(seen, layer, expected)
    if check_names(seen) == "hidden":
        log(f"specdeck: the names {DOUBTS['hidden']}")
    other = "" if found.found == expected else f", and {expected} was expected"
    doubt = "" if found.reason is None else f"; {found.reason}"
    line = f"{layer} is {found.found}{other}{doubt}"
    print_verdict(found.as_json(), lambda: [line], as_json=as_json)
    return 0 if found.same else 1


async def _read_kept(side: str) -> Fingerprint | None:
    """One side of a diff that is a moment or a pin's file; None for an engine."""
    if moment := _MOMENT.fullmatch(side):
        digits = moment[1]  # of more than these there is no row in a store
        known = len(digits) <= _MOST_DIGITS
        found = await open_fingerprints().moments(number=int(digits)) if known else ()
        if not found:
            remedy = "see `specdeck fingerprint show URL --history`"
            raise UsageError(f"there is no moment {side[:40]}", remedy=remedy)
        return found[0].fingerprint
    return read_pin(Path(side)) if is_file(side) else None


async def _fetch_sides(
    sides: tuple[_Side, _Side], *, behaviour: bool, api_key_env: str | None
) -> tuple[Fingerprint, Fingerprint]:
    """Both sides of a diff: engines as they are now, each probed beside what is there already."""

    async def fetch(side: str, beside: Fingerprint | None) -> Fingerprint:
        to, fingerprints = _open(side, api_key_env)
        return await _fetch(fingerprints, to.url, behaviour=behaviour, beside=beside)

    (one, before), (other, after) = sides
    before = before or await fetch(one, after)
    return before, after or await fetch(other, before)


def _open(engine: str, api_key_env: str | None) -> tuple[Access, Fingerprints]:
    to = access(engine, api_key_env=api_key_env)
    name = None if to.record is None else to.record.name
    fingerprints = open_fingerprints(
        api_key_env=api_key_env, known=(to,), find_name=lambda url: name, on_notice=_log_notice
    )
    return to, fingerprints


def _log_notice(text: str) -> None:
    log(f"specdeck: {text}")


class ReadingLog:
    """Tells on stderr how far an engine is with reading its weights, and for how long it is waited
    for one that gets no further."""

    def __init__(self) -> None:
        self._said = ""
        self._next_s = _STALL_LINE_S

    def write(self, progress: Progress, stalled_s: float) -> None:
        """What is new of it; it has got no further for `stalled_s`."""
        if progress.line() != self._said:
            self._said = progress.line()
            log(f"specdeck: the engine is {self._said}")
        if not stalled_s:
            self._next_s = _STALL_LINE_S
        elif self._next_s <= stalled_s < STALLED_S:
            self._next_s = stalled_s + _STALL_LINE_S
            log(
                f"specdeck: the engine has got no further for {stalled_s:.0f} s:"
                f" given up in {STALLED_S - stalled_s:.0f} s"
            )


async def _fetch(
    fingerprints: Fingerprints,
    url: str,
    *,
    behaviour: bool = False,
    beside: Fingerprint | None = None,
) -> Fingerprint:
    """The engine's fingerprint; stderr says how far the reading and the probe are.

    A behaviour is probed for a comparison with `beside`.
    """
    reading = ReadingLog()

    def log_answer(done: int, of: int) -> None:
        if done % max(1, of // _PROBE_LINES) == 0:
            log(f"specdeck: {done} of {of} probes answered")

    if not behaviour:
        return await fingerprints.fetch_finished(url, on_progress=reading.write)
    return await fingerprints.fetch_with_behaviour(
        url,
        beside=None if beside is None else beside.behaviour,
        on_progress=reading.write,
        on_answer=log_answer,
    )


def _require_behaviour(*sides: Fingerprint) -> None:
    """Raises UsageError where --behaviour has nothing to compare with."""
    if any(side.behaviour is None for side in sides):
        raise UsageError(
            "--behaviour compares what both sides were probed for, and one was not",
            remedy="pin with `specdeck fingerprint pin URL --behaviour`",
        )


def _is_probed(pinned: Fingerprint | None) -> bool:
    return pinned is not None and pinned.behaviour is not None


def _pin_file(fingerprints: Fingerprints, to: Access, expect: str | None) -> PinFile:
    if expect is not None:
        place = Path(expect)
        return PinFile(lambda: place, required=True)
    _find_pin(fingerprints, to)
    return PinFile(lambda: fingerprints.pin_place(to.url), required=True)


def _find_pin(fingerprints: Fingerprints, to: Access) -> Path:
    """Where the engine's own pin lies; says where that is not under its name."""
    place, home = fingerprints.pin_place(to.url), fingerprints.new_pin_place(to.url)
    if place != home:
        log(f"specdeck: this pin is stored under the engine's URL, in {place}: "
            f"`specdeck fingerprint pin {to.name}` keeps one under its name")  # fmt: skip
    return place
