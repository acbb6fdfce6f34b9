"""`specdeck fingerprint`: names what serves, pins it, and tells what changed since."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from specdeck.console.cli.engines import Access, access, key_option
from specdeck.console.cli.fingerprint_book import Expected, places, webhook_option
from specdeck.console.cli.fingerprint_every import exports_options
from specdeck.console.cli.fingerprint_expect import expect_option, is_file, is_name, named
from specdeck.console.cli.fingerprint_looks import looked, say_progress
from specdeck.console.cli.fingerprint_memory import moments, note_fingerprint
from specdeck.console.cli.fingerprint_words import compared_lines, told
from specdeck.console.cli.talk import emit, say, table
from specdeck.engine.errors import UsageError

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.fingerprint import Fingerprint

_Command = TypeVar("_Command", bound=Callable[..., object])
_MOMENT = re.compile(r"@(\d+)")

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
behaviour_option = click.option(
    "--behaviour/--no-behaviour",
    default=None,
    help="Ask the probe set as well: what the engine does, not only what it is.",
)


@click.group("fingerprint", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Name what serves, pin it, and tell what changed since.

    Three layers: sd1:b… what was built, sd1:p… the path that serves (it moves with k),
    sd1:x… what it does. A tilde marks a name of facts that are not all known.
    """


@command.command("show")
@click.argument("engine", metavar="URL")
@json_option
@behaviour_option
@click.option("--history", is_flag=True, help="Every fingerprint of it that was noted.")
@key_option
def show(
    engine: str, as_json: bool, behaviour: bool | None, history: bool, api_key_env: str | None
) -> int:
    """Show the names of an engine, and every fact behind them."""
    to = access(engine, api_key_env=api_key_env)
    if history:
        return _history(to, as_json=as_json)
    seen = asyncio.run(looked(to, behaviour=bool(behaviour), wait=bool(behaviour)))
    note_fingerprint(seen)
    if as_json:
        emit(seen.as_json())
    else:
        click.echo("\n".join(told(seen, facts=True)))
        say_progress(seen)
    return 0


@command.command("pin")
@click.argument("engine", metavar="URL")
@click.option(
    "--expect",
    "--output",
    "-o",
    "output",
    metavar="F",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=named,
    help="The file to write, such as one beside an eval suite; default: specdeck's own folder.",
)
@json_option
@behaviour_option
@key_option
def pin(
    engine: str,
    output: Path | None,
    as_json: bool,
    behaviour: bool | None,
    api_key_env: str | None,
) -> int:
    """Keep the fingerprint of an engine as what is expected of it."""
    from specdeck.engine.fingerprint.pins import write_pin

    to = access(engine, api_key_env=api_key_env)
    seen = asyncio.run(looked(to, behaviour=bool(behaviour)))
    note_fingerprint(seen)
    place = output or places(to).home
    write_pin(seen, place)
    if as_json:
        emit({"pin": str(place), **seen.names, "partial": seen.partial})
    else:
        click.echo("\n".join(told(seen, facts=False)))
        click.echo(f"pinned     {place}")
    return 0


@command.command("verify")
@click.argument("engine", metavar="URL")
@expect_option
@json_option
@behaviour_option
@exports_options
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
    from specdeck.console.cli.fingerprint_every import (
        Exports,
        Round,
        again,
        refuse_nonsense,
        seconds,
    )
    from specdeck.engine.fingerprint.drift import Judge
    from specdeck.engine.fingerprint.pins import PinFile

    by_name = expect is not None and is_name(expect)
    exported = metrics_file is not None or webhook_env is not None
    refuse_nonsense(every, metrics_port, by_name=by_name, exported=exported)
    pause_s = seconds(every)
    to = access(engine, api_key_env=api_key_env)
    if expect is not None and by_name:
        return _verified_name(to, expect, as_json=as_json)
    hook = Expected(webhook_env=webhook_env).hook()
    pinned, place = _pinned(to, expect)

    def probe(pinned: Fingerprint) -> bool:
        return pinned.behaviour is not None if behaviour is None else behaviour

    if every is None and metrics_file is None and hook is None:
        return _compared(pinned, _looked(to, probe(pinned)), as_json=as_json, pin=place)

    async def look() -> Fingerprint:
        found = await looked(to, behaviour=probe(rounds.pinned))
        note_fingerprint(found)
        return found

    pins = PinFile(places(to).found if expect is None else lambda: place, required=True)
    exports = Exports(metrics_port, metrics_file, hook, metrics_address)
    rounds = Round(look, Judge(pinned, place), exports, to.url, pins)
    return asyncio.run(again(rounds, pause_s, as_json=as_json))


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

    With one engine alone: since its pin. Exits with 1 when something differs.
    """
    if other is not None and expect is not None:
        raise UsageError("--expect stands for the second side", remedy="give one of them")
    second = expect if other is None else other
    if second is None:
        to = _alone(one, api_key_env)
        before, after = _pinned(to, None)[0], _looked(to, bool(behaviour))
    else:
        before, after = (_side(side, bool(behaviour), api_key_env) for side in (one, second))
    return _compared(before, after, as_json=as_json, full=True)


def _compared(
    before: Fingerprint,
    after: Fingerprint,
    *,
    as_json: bool,
    pin: Path | None = None,
    full: bool = False,
) -> int:
    from specdeck.engine.fingerprint.compare import compare

    found = compare(before, after)
    if as_json:
        emit({**found.as_json(), "pin": str(pin) if pin else None})
    else:
        click.echo("\n".join(compared_lines(found, full=full)))
    return 0 if found.same else 1


def _verified_name(to: Access, expect: str, *, as_json: bool) -> int:
    """A name alone says whether, and not what."""
    from specdeck.engine.fingerprint.name import layer_of, own_part

    wanted = own_part(expect)
    layer = layer_of(wanted)
    assert layer is not None
    seen = asyncio.run(looked(to, behaviour=False))
    note_fingerprint(seen)
    found = seen.names[layer]
    same = found == wanted
    if as_json:
        emit({"same": same, "layer": layer, "expected": wanted, "found": found})
    else:
        click.echo(f"{layer} is {found}" + ("" if same else f", and {wanted} was expected"))
    return 0 if same else 1


def _side(side: str, behaviour: bool, api_key_env: str | None) -> Fingerprint:
    from specdeck.engine.fingerprint.pins import read_pin

    if moment := _MOMENT.fullmatch(side):
        return _moment(int(moment[1]))
    if is_file(side):
        return read_pin(Path(side))
    return _looked(access(side, api_key_env=api_key_env), behaviour)


def _alone(one: str, api_key_env: str | None) -> Access:
    """The engine of a diff with its own pin; raises UsageError for what has none."""
    if not is_file(one) and not _MOMENT.fullmatch(one):
        return access(one, api_key_env=api_key_env)
    _side(one, False, None)  # one that cannot be read says so
    raise UsageError(
        f"nothing to compare {one} with", remedy="give an engine, another pin or @N beside it"
    )


def _looked(to: Access, behaviour: bool) -> Fingerprint:
    seen = asyncio.run(looked(to, behaviour=behaviour))
    note_fingerprint(seen)
    return seen


def _moment(number: int) -> Fingerprint:
    found = moments(number=number)
    if not found:
        raise UsageError(
            f"there is no moment @{number}", remedy="see `specdeck fingerprint show URL --history`"
        )
    return found[0].seen


def _history(to: Access, *, as_json: bool) -> int:
    found = moments(url=to.url)
    if as_json:
        rows = [{"moment": f"@{m.number}", "t": m.seen.t, **m.seen.names} for m in found]
        emit(rows)
        return 0
    stamp = "%Y-%m-%d %H:%M:%S"
    rows_ = [
        (f"@{m.number}", time.strftime(stamp, time.localtime(m.seen.t)), m.seen.build, m.seen.path,
         m.seen.names["behaviour"] or "–")
        for m in found
    ]  # fmt: skip
    click.echo(table(("MOMENT", "SEEN", "BUILD", "PATH", "BEHAVIOUR"), rows_))
    return 0


def _pinned(to: Access, expect: str | None) -> tuple[Fingerprint, Path]:
    from specdeck.engine.fingerprint.pins import read_pin

    own = places(to)
    place = own.found() if expect is None else Path(expect)
    if expect is None and place != own.home:
        say(f"specdeck: this pin lies under the engine's URL, in {place}: "
            f"`specdeck fingerprint pin {own.name}` keeps one under its name")  # fmt: skip
    return read_pin(place), place
