"""The fingerprint screen's head: three names, what they cover, and the verdict in words."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdeck.console.state.engine_state import Track
from specdeck.console.widgets.cells import BLANK, Cell, Cells, Row, Tone, join_cells
from specdeck.console.widgets.format import KeyLabel, LocalTime, at, percent
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.compare import OWN_STOOD_STILL, Comparison, PathVerdict
from specdeck.engine.fingerprint.fingerprint import Fingerprint, Progress
from specdeck.engine.operations.fingerprint import Moment
from specdeck.engine.text import format_change, format_value, oneline

_TONES: dict[PathVerdict, Tone] = {
    "same": "good", "knob": "warn", "model": "bad", "runtime": "bad", "behaviour": "bad",
    "unknown": "warn",
}  # fmt: skip

_BUILD = "weights, settings, libraries, driver"
_OUTSIDE = "version, served names, KV cache"
_UNKNOWN = 3
"""Facts that are named as unknown before the rest is counted."""


@dataclass(frozen=True, slots=True)
class Against:
    """What a fingerprint is compared with."""

    label: str
    """`pin`, an engine's name, or `@12`."""
    fingerprint: Fingerprint
    place: Path | None = None
    """Where a pin lies."""


def title(
    name: str,
    url: str,
    against: Against | None,
    where: str | None,
    key_label: KeyLabel,
    *,
    past: bool = False,
) -> Row:
    """Which engine, and what it is compared with; nothing is compared in the past."""
    address = url.removeprefix("http://")
    engine = (Cell(name, "strong"), *((Cell(address, "muted"),) if address != name else ()))
    left = (Cell(" fingerprint  ", "accent"), *join_cells(engine))
    if past:
        return Row(left)
    if against is None:
        pins, compares = key_label("fingerprint.pin"), key_label("fingerprint.against")
        hint = Cell(f"no pin: {pins} pins it, {compares} compares ", "muted")
        return Row(left, (hint,), shorter=((),))
    label = Cell(against.label, "strong")
    right = (Cell("against ", "muted"), label, Cell(" "))
    longer = (*right[:2], Cell(f" {where} ", "muted")) if where else right
    return Row(left, longer, shorter=(right, (label, Cell(" "))))


def names(
    seen: Fingerprint | None,
    found: Comparison | None,
    label: str,
    key_label: KeyLabel,
    track: Track,
) -> tuple[Row, ...]:
    """Build, path, behaviour and vLLM's own, each with what it covers."""
    if seen is None:
        return _without_facts(track)
    moved = {} if found is None else found.layers
    own = None if found is None else found.system_fingerprint_moved
    tried = _behaviour(seen, key_label("fingerprint.probe"))
    covered = {"build": _BUILD, "path": f"build and {_live(seen)}", "behaviour": tried}
    if "outside" in seen.facts:
        covered |= {"build": _OUTSIDE, "path": "build; what is live is unknown"}
    rows = [
        _name(layer, name, covered[layer], moved.get(layer), label)
        for layer, name in seen.names.items()
    ]
    theirs = "of the start" if seen.system_fingerprint else "not asked, or off"
    stamp = {True: "; responses have the path", False: "; responses lack the path"}
    theirs += stamp.get(seen.stamped, "") if seen.stamped is not None else ""
    return (*rows, _name("vLLM's own", seen.system_fingerprint, theirs, own, label))


def facts_unknown() -> tuple[Row, ...]:
    """What of a fingerprint is not recorded."""
    return (Row((Cell(" names are recorded, facts are not: those of now would mislead", "warn"),)),)


def older_names(name: str) -> Row:
    """That the engine is another one by now than the names and facts that are shown."""
    line = f" names and facts of before: the engine is {oneline(name)} by now, and is being asked"
    return Row((Cell(line, "warn"),))


def as_of(found: Fingerprint, local: LocalTime) -> tuple[Row, ...]:
    """Of when the facts are that an incident file has: at another moment they may have differed."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", local(found.t))
    return (Row((Cell(f" names and facts of {when}, as the incident file has them", "accent"),)),)


def _without_facts(track: Track) -> tuple[Row, ...]:
    """The names where no facts are known: a recording's samples have two of them, and a black box
    what was looked up last."""
    known = track.recorded or track.past
    state, names = (track.known, track.names) if known else (None, None)
    sampled, looked_up = "as the sample has it", "as it was last looked up"
    told = (
        ("build", None if names is None else names.build, looked_up),
        ("path", None if state is None else state.fingerprint, sampled),
        ("behaviour", None if names is None else names.behaviour, looked_up),
        ("vLLM's own", None if state is None else state.system_fingerprint, sampled),
    )
    return tuple(
        _name(layer, name, covers, None, "")
        if name else Row((Cell(f" {layer:<11}", "muted"), BLANK))
        for layer, name, covers in told
    )  # fmt: skip


def _name(layer: str, name: str | None, covers: str, moved: bool | None, label: str) -> Row:
    left = (
        Cell(f" {layer:<11}", "muted"),
        Cell(f"{name or BLANK.text:<21}", "strong" if name else "muted"),
    )
    partial = (Cell("partial", "warn"),) if name and "~" in name else ()
    verdicts: dict[bool | None, Cells] = {
        True: (Cell(f"≠ {label}", "bad"),), False: (Cell(f"= {label}", "good"),), None: (),
    }  # fmt: skip
    right = (*join_cells((*partial, *verdicts[moved]), "  "), Cell(" "))
    return Row((*left, Cell(f"  {covers}", "muted")), right)


def _live(seen: Fingerprint) -> str:
    live = seen.facts.get("live")
    return _knobs(live if isinstance(live, Mapping) else {})


def _knobs(live: Mapping[str, Any]) -> str:
    """The live knobs in words; a k that a policy chooses is no part of the name.

    >>> _knobs({"k": None, "mode": "speculate", "policy": "goodput"})
    'k auto, speculate, goodput'
    >>> _knobs({"k": None, "mode": "speculate", "policy": "fixed", "breaker": "half-open"})
    'speculate, fixed, breaker half-open'
    """
    k = live.get("k")
    if k is None and live.get("policy") not in (None, "fixed"):
        k = "auto"
    shown = [] if k is None else [f"k {k}"]
    shown += [str(live[name]) for name in ("mode", "policy") if live.get(name)]
    shown += [f"breaker {live['breaker']}"] if live.get("breaker") else []
    return ", ".join(shown) or "what is live"


def _behaviour(seen: Fingerprint, key: str) -> str:
    behaviour = seen.behaviour
    if behaviour is None:
        return f"not tried; {key} asks 16 probes on every arm"
    agree = f"{percent(behaviour.agreement, 1)} agree over {behaviour.runs} runs"
    return f"{agree}, step {behaviour.step:g} nats"


def verdict(found: Comparison | None) -> Iterator[Row]:
    """What differs, in words; vLLM's own standing still is said as well."""
    if found is None:
        return
    for kind, line in found.verdicts:
        yield Row((Cell(" "), Cell(line, _TONES[kind])))
    for probe in found.probes[1:4]:
        yield Row((Cell("   "), Cell(probe.line(), "muted")))
    if OWN_STOOD_STILL in found.lines():
        yield Row((Cell(" "), Cell(OWN_STOOD_STILL, "muted")))


def unknown(seen: Fingerprint | None) -> Iterator[Row]:
    """Facts that are not known, each with its reason."""
    if seen is None or not seen.progress.finished:
        return
    reasons = {one.reason for one in seen.unread}
    if len(reasons) == 1 and len(seen.unread) > 1:
        facts = ", ".join(one.fact for one in seen.unread)
        yield Row((Cell(" unknown  ", "warn"), Cell(f"{facts}: {reasons.pop()}", "muted")))
        return
    for one in seen.unread[:_UNKNOWN]:
        yield Row((Cell(" unknown  ", "warn"), Cell(oneline(one.line()), "muted")))
    if (more := len(seen.unread) - _UNKNOWN) > 0:
        yield Row((Cell(f" unknown  and {more} more", "warn"),))
    if seen.behaviour is not None:
        for reason in seen.behaviour.missing:
            yield Row((Cell(" unknown  ", "warn"), Cell(f"behaviour: {reason}", "muted")))


def status(
    found: Fingerprint | None, error: SpecdeckError | None, probe: tuple[int, int] | None
) -> Iterator[Row]:
    """What is under way, or why there is nothing to show; `probe` is answers so far and of all."""
    if probe is not None:
        done, of = probe
        text = Cell(f" probing the behaviour: {done} of {of} answers", "accent")
        yield Row((text,), (*_bar(done / of if of else 0), Cell(" ")))
    if error is not None:
        yield Row((Cell(" "), Cell(error.line(), "bad")))
    elif found is None:
        yield Row((Cell(" asking the engine for its facts", "muted"),))
    elif not found.progress.finished:
        yield _progress(found.progress)


def _progress(progress: Progress) -> Row:
    """The engine is still digesting its weights.

    >>> row = _progress(Progress(False, 5_000_000_000, 20_000_000_000, "model-1.safetensors"))
    >>> row.left[0].text, row.right[2].text
    (' reading model-1.safetensors, 5.0 of 20.0 GB', '  25%')
    """
    share = progress.bytes / progress.total_bytes if progress.bytes and progress.total_bytes else 0
    return Row((Cell(f" {progress.line()}", "accent"),), (*_bar(share), Cell(" ")))


def _bar(share: float, width: int = 16) -> Cells:
    full = round(min(1.0, share) * width)
    return (Cell("━" * full, "accent"), Cell("━" * (width - full), "rule"), Cell(f" {share:>4.0%}"))


def moment(one: Moment, local: LocalTime, now: float) -> str:
    """An earlier moment in a list to choose from."""
    seen = one.fingerprint
    day = "" if now - seen.t < 43_200 else time.strftime("%d %b ", local(seen.t))
    tried = f"  {seen.names['behaviour']}" if seen.behaviour else ""
    return f"@{one.number}  {day}{at(seen.t, local)}  {seen.path}  {_live(seen)}{tried}"


def diff(found: Comparison, label: str) -> str:
    """The whole comparison as text, for a file."""
    before, after = found.before, found.after
    lines = [f"--- {label} ({before.url})", f"+++ {after.url}"]
    lines += [f"# {line}" for line in found.lines()]
    for layer, name in after.names.items():
        lines.append(f"# {layer}: {format_change(before.names[layer], name)}")
    own = format_change(before.system_fingerprint, after.system_fingerprint)
    lines.append(f"# vLLM's own: {own}")
    lines += [f"# {probe.line()}" for probe in found.probes]
    for one in found.differences:
        if one.kind != "added":
            lines.append(f"-{one.fact} = {format_value(one.before)}")
        if one.kind != "removed":
            lines.append(f"+{one.fact} = {format_value(one.after)}")
    # Names of facts are an engine's word as much as their values: none writes a line of its own.
    return "".join(f"{oneline(line)}\n" for line in lines)
