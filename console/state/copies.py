"""What can be copied of an engine: figures, names, and each action as the command that does it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specdeck.console.state.engine_state import Track
from specdeck.console.state.pending import (
    k_wanted,
    next_breaker,
    next_mode,
    next_policy,
)
from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions
from specdeck.engine.operations.assignments import format_set
from specdeck.engine.protocol.messages import Change
from specdeck.engine.text import oneline, printable

if TYPE_CHECKING:
    from specdeck.console.state.check import SplitCheck
    from specdeck.engine.divergence.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Copyable:
    """Something that can be copied."""

    label: str
    """What it is, in a few words."""
    text: str
    """What the clipboard gets. It may be pasted into a shell: foreign text in it has no line end
    that would send it off, and nothing that a terminal obeys."""


def list_figures(track: Track) -> Iterator[Copyable]:
    """The engine's address, its names and its figures, in full."""
    yield Copyable("engine", oneline(track.url))  # that of a recording is its own word
    state = track.known
    names = (
        ("path", None if state is None else state.fingerprint),
        ("build", None if track.names is None else track.names.build),
        ("vLLM's fingerprint", None if state is None else state.system_fingerprint),
        ("model", None if state is None else state.model),
        ("instance", None if state is None else state.instance),
    )
    yield from (Copyable(label, oneline(text)) for label, text in names if text)
    window = None if track.figures is None else track.figures.window
    if window is not None:
        figures = (
            ("tokens/s", window.tokens_per_second),
            ("acceptance", window.acceptance_rate),
            ("accepted length", window.mean_acceptance_length),
            ("output from drafts", window.output_from_drafts),
        )
        yield from (
            Copyable(label, f"{value:.6g}") for label, value in figures if value is not None
        )


def list_commands(
    track: Track, *, trial: Change | None = None, options: CommandOptions = NO_OPTIONS
) -> Iterator[Copyable]:
    """Each action on the engine as the command that would do it now.

    `trial` is the one that the dialog would suggest, `options` what commands have to be given for
    the engine.
    """

    def command(label: str, change: Change) -> Iterator[Copyable]:
        if text := format_set(track.url, change, options):
            yield Copyable(label, printable(text))

    k = k_wanted(track)
    if k is not None and track.known is not None:
        for by, name in ((1, "k more"), (-1, "k less")):
            if 0 <= k + by <= track.known.k_max:
                yield from command(name, Change(k=k + by))
        yield from command("this k", Change(k=k))
    yield from command("target-only", next_mode(track))
    yield from command("auto", next_policy(track))
    yield from command("breaker", next_breaker(track))
    if trial is not None:
        yield from command("trial", trial)
    if track.undo.latest is not None:
        yield from command("undo", track.undo.latest)
    for one in track.tuning.parameters if track.tuning is not None else ():
        if one.value != one.default:
            value = "none" if one.value is None else one.value
            yield from command(one.name, Change(parameters={one.name: value}))
    steer, read = options.steer(track.url), options.read(track.url)
    for name, words in (("sweep", f"sweep {steer}"), ("watch", f"watch {read}"),
                        ("check", f"check {read}"), ("fingerprint", f"fingerprint show {read}"),
                        ("console", f"attach {steer} --control")):  # fmt: skip
        yield Copyable(name, printable(f"specdeck {words}"))


def list_check_copies(
    check: SplitCheck, url: str, prompt: Prompt | None, *, keyed: bool
) -> Iterator[Copyable]:
    """Both requests of a prompt as curl, the check as a command, and the prompt itself.

    The arms' requests are known once the engines have said who they are.
    """
    from specdeck.engine.divergence.bundle import format_curl
    from specdeck.engine.operations.check_command import format_check

    session = check.session
    options = replace(session.options, reference=check.reference)
    if prompt is not None:
        for arm in check.split.arms or ():
            asked = format_curl(
                arm.url, prompt, options.settings, model=arm.model, pin=arm.pin, keyed=keyed
            )
            yield Copyable(f"curl, {arm.name}", asked)
    yield Copyable("check", format_check(url, options, session.source))
    if prompt is not None:
        yield Copyable("prompt", _spell_json(prompt.body))


def _spell_json(body: Mapping[str, Any]) -> str:
    """`body` as JSON that can be read, with escapes for what a terminal would obey."""
    text = json.dumps(body, ensure_ascii=False)
    return printable(text, lambda character: json.dumps(character)[1:-1])


def copy_case(case: Mapping[str, Any]) -> Copyable:
    """One case of a check on one line: in it may be keys that a model chose."""
    from specdeck.engine.divergence.report import case_line

    return Copyable("case", printable(case_line(case)))
