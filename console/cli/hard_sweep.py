"""`specdeck sweep --hard`: the sweep with an engine without speculation as one more arm."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from specdeck.console.cli.audit import UserAudit
from specdeck.console.cli.common import open_user_store
from specdeck.console.cli.engines import Access, require_vllm
from specdeck.console.cli.output import emit, log, print_lines
from specdeck.console.cli.run import start_reference_engine
from specdeck.console.cli.sweep_report import (
    WIDEST,
    SweepScreen,
    curve_lines,
    hard_lines,
    has_to_tell,
    print_outcome,
    verdict_lines,
)
from specdeck.engine.config.loader import load as load_config
from specdeck.engine.demo.load import Load, drive, open_load_client
from specdeck.engine.demo.profiles import PROFILES
from specdeck.engine.errors import ConfigError, SpecdeckError, UsageError
from specdeck.engine.operations.hard_sweep import (
    HARD_LEASE_S,
    HardOutcome,
    HardSweep,
    Side,
    refuse_busy,
    seconds_left,
)
from specdeck.engine.operations.sweep import Sweep, SweepRequest
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.store.soft_costs import SoftCost, SoftCosts
from specdeck.engine.store.starts import config_key
from specdeck.engine.sweep.plan import Plan, every_k
from specdeck.engine.text import format_duration

STEADY = tuple(name for name, profile in PROFILES.items() if len(profile.phases) == 1)
"""The profiles of the load that are the same at every moment, so that visits can be compared."""
STREAMS = 4
_LEAST_ROUNDS = 6
"""An interval of fewer rounds is too wide to tell an engine by it."""


@dataclass(frozen=True, slots=True)
class OwnLoad:
    """The load that the sweep brings."""

    profile: str
    streams: int

    @property
    def width(self) -> int:
        """Requests at once: some profiles say it themselves."""
        return PROFILES[self.profile].widest or self.streams

    def __str__(self) -> str:
        """The load in words.

        >>> str(OwnLoad("predictable", 4)), str(OwnLoad("prompts", 4))
        ('predictable, 4 streams', 'prompts, 12 streams')
        """
        return f"{self.profile}, {self.width} stream{'s' if self.width > 1 else ''}"


async def sweep_hard(
    ours: Access, reference: Access | None, wanted: SweepRequest, own: OwnLoad, *, as_json: bool
) -> int:
    """Runs the sweep beside an engine without speculation, which it starts unless one is named.

    Prints what came of it, whole or not, and leaves nothing of it; the exit code.
    """
    if wanted.ks is not None and 0 not in wanted.ks:
        raise UsageError("--hard requires k=0 among --k", remedy="add 0, such as --k 0,3")
    async with AsyncExitStack() as stack:
        client = ours.client()
        stack.push_async_callback(client.close)
        async with require_vllm(client):
            state = await client.state()
        if 0 not in every_k(state):
            raise UsageError(f"k=0 cannot be visited: {state.can('target_only').reason}")
        refuse_busy(ours.url, state)  # before half a minute is spent on a start
        theirs = await stack.enter_async_context(_open_reference(ours, reference))
        plain = theirs.client()
        stack.push_async_callback(plain.close)

        @asynccontextmanager
        async def drive_load(side: Side, number: int) -> AsyncIterator[None]:
            to = ours if side == "serving" else theirs
            async with (
                open_load_client(to.url, headers=_headers(to), check_port=to.check_port) as http,
                drive(Load(PROFILES[own.profile], own.streams, seed=number), http),
            ):
                yield

        rounds = wanted.rounds or _count_rounds(wanted, state)
        asked = replace(wanted, rounds=rounds, lease_s=HARD_LEASE_S)
        audit = UserAudit()
        work = HardSweep(
            Sweep(client, asked, url=ours.url, name=ours.name, record=audit.add),
            client,
            plain,
            drive=drive_load,
            url=ours.url,
            reference_url=theirs.url,
            name=ours.name,
            audit=audit,
        )
        try:
            await _follow(work, own)
        except SpecdeckError as error:  # of the other engine; what follows may end in another one
            if (cut := work.outcome) is not None and cut.sweep.failure is not None:
                log(f"specdeck: {error.line()}")
            raise
        finally:
            outcome = work.outcome
            if outcome is not None:
                _keep(ours, outcome, own)
                print_outcome(outcome.sweep, partial(_print, outcome, as_json=as_json))
    if outcome is not None and outcome.sweep.error is not None:
        raise outcome.sweep.error
    return 0


@asynccontextmanager
async def _open_reference(ours: Access, reference: Access | None) -> AsyncIterator[Access]:
    """The engine without speculation: the one that was named, or one that ends with the block."""
    if reference is not None:
        yield reference
        return
    started = start_reference_engine(ours)
    try:
        theirs = await started.__aenter__()
    except ConfigError:
        log("specdeck: nothing was changed; --reference URL compares with an engine elsewhere")
        raise
    async with AsyncExitStack() as stack:
        stack.push_async_exit(started)
        yield theirs


async def _follow(work: HardSweep, own: OwnLoad) -> None:
    screen = SweepScreen(lambda: work.outcome)
    try:
        async with aclosing(work.events()) as events:
            async for event in events:
                if isinstance(event, Plan):
                    visits = event.visits + event.rounds
                    seconds = format_duration(seconds_left(event, visits))
                    log(f"specdeck: {visits} visits under {own}, about {seconds}; "
                        "Ctrl-C restores k")  # fmt: skip
                screen.show(event)
    finally:
        screen.close()


def _count_rounds(wanted: SweepRequest, state: EngineState) -> int:
    """As many rounds as the time allows for each k and the engine beside them."""
    arms = len(wanted.ks or every_k(state)) + 1
    return max(_LEAST_ROUNDS, min(12, int(wanted.seconds / (1.5 * arms))))


def _headers(to: Access) -> dict[str, str]:
    return {} if to.api_key is None else {"Authorization": f"Bearer {to.api_key.reveal()}"}


def _keep(ours: Access, outcome: HardOutcome, own: OwnLoad) -> None:
    """Remembers what was found for the next start from the same config."""
    found, cost = outcome.comparison, outcome.comparison.soft_cost
    config = None if ours.record is None else ours.record.config
    if config is None or cost is None or found.known_cost is None or not outcome.sweep.complete:
        return
    with suppress(SpecdeckError), open_user_store() as store:
        known = load_config(Path(config))
        started = ours.record.arguments if ours.record is not None else None
        key, digest = config_key(known.path), started or known.arguments_digest
        measured = (found.known_cost, cost.low, cost.high, found.hard_batch)
        SoftCosts(store).add(SoftCost(time.time(), key, digest, *measured, str(own)))


def _print(outcome: HardOutcome, *, as_json: bool) -> None:
    swept = outcome.sweep
    if not has_to_tell(swept, as_json=as_json):
        return
    if as_json:
        emit(outcome.as_json())
        return
    width = min(WIDEST, shutil.get_terminal_size().columns)
    curve = curve_lines(swept, width, outcome.comparison)
    best, *rest = verdict_lines(swept)
    print_lines(*curve, "", best, *hard_lines(outcome), *rest)
    for notice in (*swept.notices, *outcome.notices):
        log(f"specdeck: {notice}")
