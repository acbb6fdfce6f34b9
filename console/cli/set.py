"""`specdeck set`: changes a running engine and shows what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import click

from specdeck.console.cli.audit import UserAudit, print_history
from specdeck.console.cli.common import Finite, until_signal
from specdeck.console.cli.engines import Access, access, key_option, require_vllm, token_option
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.console.cli.set_outcome import Narrator, outcome_lines
from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.assignments import parse_assignments
from specdeck.engine.operations.change import IDLE_S, ChangeEvent, make_change, poll
from specdeck.engine.operations.trial import TrialRunner, as_trial
from specdeck.engine.protocol.messages import Change


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
    help="The engine reverts the change after S seconds, whatever it did.",
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
        if assignments:
            remedy = f"leave out {assignments[0]}"
            raise UsageError("--history changes nothing", remedy=remedy)
        return print_history(engine, as_json=as_json)
    if not assignments:
        raise click.UsageError("give what to set, such as k=3, or --history")
    change = replace(
        parse_assignments(assignments), lease_s=lease, reason=reason, who=find_operator()
    )
    change = _as_trial(change, trial, detach=detach)
    to = access(engine, api_key_env=api_key_env, token_file=token_file)
    narrator = Narrator(change, to.url, attended=change.judge and not detach)
    work = _make(to, narrator, as_json=as_json)
    return asyncio.run(until_signal(work, on_interrupt=narrator.standing))


async def _make(to: Access, narrator: Narrator, *, as_json: bool) -> int:
    """Makes the change or tries it, prints what became of it; the exit code."""
    change, client = narrator.change, to.client()
    try:
        async with require_vllm(client):
            if change.judge:
                await _try(to, client, narrator)
            else:
                async for event in request_change(to, client, change):
                    narrator.take(event)
    finally:
        await client.close()
    outcome = narrator.outcome()
    try:
        if as_json:
            emit(outcome.as_json())
        else:
            print_lines(*outcome_lines(outcome))
    except OSError:  # the change is made all the same, and so is its undo
        for line in outcome_lines(outcome):
            log(f"specdeck: {line}")
        raise
    for line in narrator.later:
        log(f"specdeck: {line}")
    if change.lease_s is not None and not change.judge:
        log(f"specdeck: the engine reverts this in {change.lease_s:g} s")
    return 0


async def request_change(
    to: Access, client: EngineClient, change: Change
) -> AsyncGenerator[ChangeEvent, None]:
    """Makes `change`, looks for it in the counters and writes the user's audit log."""
    known = await client.state()
    events = make_change(
        client, change, name=to.name, known=known, looks=poll(client), audit=UserAudit(),
        idle_s=IDLE_S,
    )  # fmt: skip
    async with aclosing(events):
        async for event in events:
            yield event


async def _try(to: Access, client: EngineClient, narrator: Narrator) -> None:
    """Begins the trial and leaves it to the engine, or stays; cancelled, it is taken back."""
    trial = TrialRunner(
        client, narrator.change, name=to.name, audit=UserAudit(),
        on_notice=lambda waiting: log(f"specdeck: {waiting.line()}"),
    )  # fmt: skip
    try:
        async for event in trial.attend() if narrator.attended else trial.detach():
            narrator.take(event)
    except asyncio.CancelledError:
        if narrator.attended:
            narrator.stopped = await asyncio.shield(trial.take_back())
        raise


def _as_trial(change: Change, trial: float | None, *, detach: bool) -> Change:
    """The change as a judged trial; raises UsageError on options that do not go together."""
    if trial is None:
        if detach:
            raise UsageError("--detach requires --trial", remedy="give --trial S, or leave it out")
        return change
    if change.lease_s is not None:
        raise UsageError("--trial and --lease are mutually exclusive", remedy="give one of them")
    if change.breaker is not None:
        raise UsageError("the breaker cannot be put on trial", remedy="set it without --trial")
    return as_trial(change, trial_s=trial, attended=not detach)
