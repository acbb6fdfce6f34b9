"""`specdeck set`: changes a running engine and shows what came of it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specdeck.console.cli.engines import access, key_option, token_option
from specdeck.console.cli.numbers import Finite
from specdeck.console.cli.operator import operator
from specdeck.console.cli.set_asking import attended, begun, made
from specdeck.console.cli.talk import emit, say
from specdeck.engine.control.protocol import FALLBACKS, MODES, POLICIES, Change, Value
from specdeck.engine.errors import UsageError

WORDS: dict[str, tuple[str, ...]] = {
    "mode": MODES,
    "policy": POLICIES,
    "fallback": FALLBACKS,
    "breaker": ("open", "closed", "probe"),
}
_BLOCKS = ("goodput", "threshold", "breaker", "trial")
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?([eE][-+]?\d{1,2})?")
_MOST_DIGITS = 9
"""Of a k: more than any engine's buffers, and fewer than Python refuses to read."""


@click.command("set")
@click.argument("engine", metavar="URL")
@click.argument("assignments", metavar="k=N|mode=M|policy=P|breaker=B…", nargs=-1)
@click.option(
    "--trial",
    type=Finite(min=1.0),
    metavar="S",
    help="Try it: S seconds of work are compared with the time before, then it is kept or taken "
    "back. Stays until then; the engine takes the change back soon after this command is gone.",
)
@click.option(
    "--detach", is_flag=True, help="With --trial: leave the verdict to the engine and return."
)
@click.option(
    "--lease",
    type=Finite(min=1.0, max=86_400.0),
    metavar="S",
    help="The engine takes the change back by itself after S seconds, whatever it did.",
)
@click.option("--reason", metavar="T", help="Kept in the audit log.")
@click.option(
    "--history", is_flag=True, help="Show the audit log of this engine: what was changed from here."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --history a list.")
@key_option
@token_option
def command(
    engine: str,
    assignments: tuple[str, ...],
    trial: float | None,
    detach: bool,
    lease: float | None,
    reason: str | None,
    history: bool,
    as_json: bool,
    api_key_env: str | None,
    token_file: Path | None,
) -> int:
    """Change k, mode, policy, breaker or parameters of a running engine, without a restart.

    breaker=open is target-only until breaker=closed, breaker=probe until probes show a gain.
    Parameters have dotted names, such as goodput.margin=0.02. Prints what was requested,
    what the engine says, and what its counters show.
    """
    if history:
        return _past(engine, assignments, as_json=as_json)
    if not assignments:
        raise click.UsageError("give what to set, such as k=3, or --history")
    change = replace(asked(assignments), lease_s=lease, reason=reason, who=operator())
    change = _tried(change, trial, detach=detach)
    to = access(engine, api_key_env=api_key_env, token_file=token_file)
    ask = made if not change.judge else begun if detach else attended
    outcome = ask(to, change)
    if as_json:
        emit(outcome.as_json())
    else:
        click.echo(told(outcome.as_json()))
    for notice in outcome.notices:
        say(f"specdeck: {notice}")
    if lease is not None:
        say(f"specdeck: the engine takes this back by itself in {lease:g} s")
    return 0


def _past(engine: str, assignments: Sequence[str], *, as_json: bool) -> int:
    """Shows what was changed before; raises UsageError when something is to be set as well."""
    if assignments:
        raise UsageError("--history changes nothing", remedy=f"leave out {assignments[0]}")
    from specdeck.console.cli import set_history

    return set_history.shown(engine, as_json=as_json)


def _tried(change: Change, trial: float | None, *, detach: bool) -> Change:
    """The change as a judged trial; raises UsageError on options that do not go together."""
    if trial is None:
        if detach:
            raise UsageError("--detach goes with --trial", remedy="give --trial S, or leave it out")
        return change
    if change.lease_s is not None:
        raise UsageError("--trial and --lease exclude each other", remedy="give one of them")
    if change.breaker is not None:
        raise UsageError("the breaker is not tried", remedy="set it without --trial")
    from specdeck.engine.control.attend import LEASE_S

    # A trial gives up by itself when there is too little to measure, long before this.
    lease = min(86_400.0, 4 * trial + 120) if detach else LEASE_S
    return replace(change, judge=True, trial_s=trial, lease_s=lease)


def asked(assignments: Sequence[str]) -> Change:
    """The change that the words ask for; raises UsageError on nonsense.

    >>> asked(["k=3", "mode=speculate", "goodput.margin=0.02"]).asked()
    {'k': 3, 'mode': 'speculate', 'goodput.margin': 0.02}
    """
    found: dict[str, Any] = {}
    parameters: dict[str, Value] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        dotted = name.partition(".")[0] in _BLOCKS and "." in name
        if not equals or not (dotted or name in ("k", *WORDS)):
            raise UsageError(
                f"{assignment!r} is nothing that can be set",
                remedy="give k=N, mode=…, policy=…, breaker=…, fallback=… or a parameter such as "
                "goodput.margin=0.02",
            )
        if name in found or name in parameters:
            raise UsageError(f"{name} is given twice", remedy="say it once")
        if dotted:
            parameters[name] = _value(name, value)
        else:
            found[name] = _k(value) if name == "k" else _word(name, value)
    if found.get("breaker") == "probe":
        found.update(breaker="open", probe=True)
    return Change(**found, parameters=parameters or None)


def _value(name: str, text: str) -> Value:
    """A parameter's value; the engine knows what it can be.

    >>> [_value("x", text) for text in ("2", "0.5", "true", "none", "always")]
    [2, 0.5, True, 'none', 'always']
    """
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text) and text.isascii():
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    if not text.isalpha():
        raise UsageError(f"{name}={text[:40]} is no value", remedy="give a number or a word")
    return text


def _k(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS):
        raise UsageError(
            f"k={value[:40]} is no number of tokens", remedy="give 0 or more, such as k=3"
        )
    return int(value)


def _word(name: str, value: str) -> str:
    if value in WORDS[name]:
        return value
    near = difflib.get_close_matches(value, WORDS[name], n=1)
    remedy = f"did you mean {name}={near[0]}?" if near else f"give {' or '.join(WORDS[name])}"
    raise UsageError(f"there is no {name} {value!r}", remedy=remedy)


def told(outcome: dict[str, Any]) -> str:
    """The outcome for a person, one thing a line.

    >>> print(told({"requested": {"k": 3}, "applied": {"k": 3}, "before": {"k": 5},
    ...             "ack_ms": 12.14, "observed_k": 3.0, "observed_after_ms": 340,
    ...             "undo": "specdeck set URL k=5"}))
    requested  k=3
    applied    k=3 (was k=5), after 12 ms
    observed   3.00 draft tokens per draft, after 340 ms
    undo       specdeck set URL k=5
    """
    trial = outcome.get("trial") or {}
    lines = [f"requested  {_pairs(outcome['requested'])}", _made(outcome, trial)]
    observed, after = outcome.get("observed_k"), outcome.get("observed_after_ms")
    if observed is None:
        lines.append("observed   –")
    else:
        when = "" if after is None else f", after {after:.0f} ms"
        while_tried = " while on trial" if trial.get("state") == "reverted" else ""
        lines.append(f"observed   {observed:.2f} draft tokens per draft{while_tried}{when}")
    if trial:
        reason = f": {trial['reason']}" if trial.get("reason") else ""
        lines.append(f"trial      {trial['state']}{reason}")
    if outcome.get("undo") and trial.get("state") not in ("reverted", "abandoned"):
        lines.append(f"undo       {outcome['undo']}")
    return "\n".join(lines)


def _made(outcome: dict[str, Any], trial: dict[str, Any]) -> str:
    """What the engine did: made the change, or tried it.

    >>> tried = {"state": "reverted", "before": {"k": 2}, "after": {"k": 8}}
    >>> _made({}, tried), _made({}, {**tried, "state": "abandoned"})
    ('on trial   k=8, taken back: k=2 is in force again', 'on trial   k=8, never made: k=2 stayed')
    """
    state = trial.get("state")
    if state in (None, "kept", "changed"):
        return (
            f"applied    {_pairs(outcome['applied'])} (was {_pairs(outcome['before'])})"
            f", after {outcome['ack_ms']:.0f} ms"
        )
    before = _pairs(trial["before"])
    what = {
        "reverted": f"taken back: {before} is in force again",
        "abandoned": f"never made: {before} stayed",
    }
    stands = what.get(state, f"not made yet: {before} is being measured")
    return f"on trial   {_pairs(trial['after'])}, {stands}"


def _pairs(knobs: dict[str, Any]) -> str:
    from specdeck.engine.control.observe import spelled

    return " ".join(f"{name}={spelled(value)}" for name, value in knobs.items())
