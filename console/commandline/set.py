"""`specdeck set`: changes k, mode or policy of a running engine and shows what came of it."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.commandline.engines import Access, access, key_option, token_option
from specdeck.console.commandline.memory import note_outcome
from specdeck.console.commandline.numbers import Finite
from specdeck.console.commandline.operator import operator
from specdeck.console.commandline.talk import emit, say
from specdeck.engine.control.protocol import FALLBACKS, MODES, POLICIES, Change
from specdeck.engine.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from specdeck.engine.control.observe import Outcome

WORDS: dict[str, tuple[str, ...]] = {"mode": MODES, "policy": POLICIES, "fallback": FALLBACKS}


@click.command("set")
@click.argument("engine", metavar="URL")
@click.argument("assignments", metavar="k=N|mode=M|policy=P…", nargs=-1, required=True)
@click.option(
    "--trial",
    type=Finite(min=1.0),
    metavar="S",
    help="The engine takes the change back by itself after S seconds.",
)
@click.option("--reason", metavar="T", help="Kept in the audit log.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@key_option
@token_option
def command(
    engine: str,
    assignments: tuple[str, ...],
    trial: float | None,
    reason: str | None,
    as_json: bool,
    api_key_env: str | None,
    token_file: Path | None,
) -> None:
    """Change k, mode or policy of a running engine, without a restart.

    Prints what was requested, what the engine says, and what its counters show.
    """
    change = replace(asked(assignments), lease_s=trial, reason=reason, who=operator())
    to = access(engine, api_key_env=api_key_env, token_file=token_file)
    outcome = asyncio.run(applied(to, change))
    note_outcome(change, outcome, engine=to.record.name if to.record else to.url)
    if as_json:
        emit(outcome.as_json())
    else:
        click.echo(told(outcome.as_json()))
    for notice in outcome.notices:
        say(f"specdeck: {notice}")
    if trial is not None:
        say(f"specdeck: the engine takes this back by itself in {trial:g} s")


def asked(assignments: Sequence[str]) -> Change:
    """The change that the words ask for; raises UsageError on nonsense.

    >>> asked(["k=3", "mode=speculate"]).asked()
    {'k': 3, 'mode': 'speculate'}
    """
    found: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or name not in ("k", *WORDS):
            raise UsageError(
                f"{assignment!r} is nothing that can be set",
                remedy="give k=N, mode=…, policy=… or fallback=…",
            )
        if name in found:
            raise UsageError(f"{name} is given twice", remedy="say it once")
        found[name] = _k(value) if name == "k" else _word(name, value)
    return Change(**found)


def _k(value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise UsageError(f"k={value} is no number of tokens", remedy="give 0 or more, such as k=3")
    return int(value)


def _word(name: str, value: str) -> str:
    if value in WORDS[name]:
        return value
    near = difflib.get_close_matches(value, WORDS[name], n=1)
    remedy = f"did you mean {name}={near[0]}?" if near else f"give {' or '.join(WORDS[name])}"
    raise UsageError(f"there is no {name} {value!r}", remedy=remedy)


async def applied(to: Access, change: Change) -> Outcome:
    """Asks for the change and watches for it in the counters."""
    from specdeck.engine.control.observe import apply

    client = to.client()
    try:
        return await apply(client, change)
    except Unsupported:
        # Any server lacks the plugin's routes: NotAnEngine where it is no vLLM at all.
        await client.version()
        raise
    finally:
        await client.close()


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
    lines = [
        f"requested  {_pairs(outcome['requested'])}",
        f"applied    {_pairs(outcome['applied'])} (was {_pairs(outcome['before'])})"
        f", after {outcome['ack_ms']:.0f} ms",
    ]
    observed, after = outcome.get("observed_k"), outcome.get("observed_after_ms")
    if observed is None:
        lines.append("observed   –")
    else:
        when = "" if after is None else f", after {after:.0f} ms"
        lines.append(f"observed   {observed:.2f} draft tokens per draft{when}")
    if outcome.get("undo"):
        lines.append(f"undo       {outcome['undo']}")
    return "\n".join(lines)


def _pairs(knobs: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs.items())
