"""`specdeck check`: does the engine's speculative path still say what the target says?"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from specdeck.console.cli.check_arguments import (
    CheckArguments,
    add_options,
    refuse_case,
    refuse_nonsense,
)
from specdeck.console.cli.check_context import open_scratch_checks, open_user_checks
from specdeck.console.cli.common import open_user_store, until_signal, write_or_log
from specdeck.console.cli.earlier_report import withdraw, withdraw_on_error
from specdeck.console.cli.engines import Access, access, require_vllm
from specdeck.console.cli.gauges_file import GaugesFile
from specdeck.console.cli.operator import find_operator
from specdeck.console.cli.output import draw_over, emit, log, print_lines, print_verdict
from specdeck.console.cli.print_queue import work_beside_output
from specdeck.console.cli.run import start_reference_engine
from specdeck.console.cli.set import Narrator, request_change
from specdeck.console.widgets.format import shorten
from specdeck.engine.client import event_loop
from specdeck.engine.client.retry import Retry, WaitingForEngine
from specdeck.engine.client.token import TOKEN_REMEDY
from specdeck.engine.divergence import report, statistics
from specdeck.engine.divergence.arms import explain_idle_drafter
from specdeck.engine.divergence.bundle import case_page, choose_case
from specdeck.engine.divergence.history import (
    PAST_CHECKS_HEAD,
    keep_readable,
    past_check_cells,
    past_checks,
)
from specdeck.engine.divergence.privacy import hash_prompt
from specdeck.engine.divergence.prompts import PromptSet, load_prompts, load_prompts_aside
from specdeck.engine.divergence.report import CheckGauges
from specdeck.engine.divergence.resume import ResumeState
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.divergence.sampled import DrawProgress
from specdeck.engine.errors import ConfigError, EngineError, SpecdeckError, Unauthorized, UsageError
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.operations.change import ChangeNotObserved
from specdeck.engine.operations.check import (
    ArmPair,
    ArmsReady,
    CheckedEngine,
    CheckEvent,
    CheckResult,
    NotDone,
    SampledResult,
    Trip,
    open_breaker,
    repeat_checks,
    run_check,
    run_sampled_check,
)
from specdeck.engine.protocol.messages import AppliedChange, Change
from specdeck.engine.special_functions import require_memory
from specdeck.engine.store.checks import Checks, open_or_spare
from specdeck.engine.text import format_count, format_duration, format_table, parse_duration

Data = Mapping[str, Any]
CODES = {"pass": 0, "fail": 1, "inconclusive": 1}
"""A gate must not open for what was not shown, so inconclusive is no pass."""
_LISTED = 30
"""Earlier checks that --history shows."""
_TERMINAL_S, _LOG_S = 0.2, 10.0
"""Between two lines of progress."""


@click.command("check")
@click.argument("engine", metavar="URL")
@add_options
def command(**options: Any) -> int:
    """Compare an engine's speculative path with the target alone, token by token.

    Asks both arms and each arm against itself, and weighs what differs. Exit code 0 is a
    pass, 1 a fail or too little to tell.
    """
    asked = CheckArguments(**options)
    refuse_nonsense(asked)
    if asked.history:
        return print_history(asked)
    require_memory()
    with withdraw_on_error(asked.reports) as end:
        prompts = load_prompts(asked.source, asked.prompt_limit)
        refuse_case(asked, prompts)
        work = (check_distributions if asked.sampled else check_tokens)(asked, prompts)
        if asked.every is not None:  # whoever has seen enough of a series ends it
            work = work_beside_output(work, ends_at=(BrokenPipeError,))
        return end(event_loop.run(until_signal(work)))


def print_history(asked: CheckArguments) -> int:
    """Prints the checks of an engine so far, side by side; the engine need not run."""
    url = access(asked.engine).url
    with open_user_store() as store:
        runs, unread = keep_readable(Checks(store).history(url, asked.limit or _LISTED))
        left_out = (*store.left_out, *unread)
    for line in left_out:
        log(f"specdeck: {line}")
    found = past_checks(runs)
    if asked.as_json:
        emit([asdict(check) for check in found])
    elif found:
        print_lines(*format_table(PAST_CHECKS_HEAD, map(past_check_cells, found)))
    elif not left_out:
        log(f"specdeck: no check of {url} has been finished here")
    return 0


async def check_tokens(asked: CheckArguments, prompts: PromptSet) -> int:
    """One check, or one every so often until a signal comes; the exit code of the last."""
    gauges = await _open_gauges(asked)
    try:
        return await _check_tokens(asked, prompts, gauges)
    except SpecdeckError:
        if gauges is not None:
            gauges.mark_failed()
        raise


async def _check_tokens(
    asked: CheckArguments, prompts: PromptSet, gauges: ShownGauges | None
) -> int:
    await _require_token(asked)
    series = CheckSeries(asked, prompts)
    events: AsyncGenerator[CheckEvent | NotDone, None] = series.check()
    if asked.every is not None:
        events = repeat_checks(series.check, parse_duration(asked.every))
    code = 0
    with series.log_when_stopped():
        async with aclosing(events):
            async for event in events:
                if isinstance(event, CheckResult):
                    result = await _trip(asked, event)
                    code = _tell(asked, result, series.prompts, gauges)
                elif isinstance(event, NotDone):
                    log(f"specdeck: {event.error.line()}")
                    withdraw(asked.reports)
                    if gauges is not None:
                        gauges.mark_failed()
    return code


class CheckSeries:
    """One check after another, with its progress on stderr; how things stand after a signal."""

    def __init__(self, asked: CheckArguments, prompts: PromptSet) -> None:
        self.prompts = prompts
        """Of the latest check: the file may be another one by the next."""
        self._asked = asked
        self._state: ResumeState | None = None
        """None while no check is under way."""
        self._begun = False

    async def check(self) -> AsyncGenerator[CheckEvent, None]:
        """The events of one check; what was cut short goes on, the rest is asked anew."""
        if self._begun:
            self.prompts = await read_again(self._asked, self.prompts)
        self._begun = True
        state = self._state = ResumeState(self.prompts.count, fresh=self._asked.fresh)
        try:
            async with aclosing(self._follow(state)) as events:
                async for event in events:
                    if isinstance(event, CheckResult):
                        self._state = None
                    yield event
        except SpecdeckError:
            self._state = None
            raise

    async def _follow(self, state: ResumeState) -> AsyncGenerator[CheckEvent, None]:
        """Ends with the result once what was held for the check is let go."""
        result: CheckResult | None = None
        await asyncio.to_thread(statistics.load)  # or the first interval would hold requests up
        async with open_arms(self._asked) as pair:
            with open_check_store() as (checks, failure), closing(Ticker()) as ticker:
                past_error = None if self._asked.new_baseline else failure
                async with aclosing(run_check(pair, self.prompts, checks)) as events:
                    async for event in events:
                        if isinstance(event, CheckResult):
                            state.finished = event.unstored is None
                            result = replace(event, past_error=past_error)
                            log_unstored(event)
                            if not event.verdict.untried:  # the first night that counts
                                self._asked = replace(self._asked, new_baseline=False)
                            continue
                        if isinstance(event, ArmsReady):
                            warn_first(event)
                            state.note_arms(
                                event.arms, stored=failure is None, own=self._asked.hard
                            )
                        elif isinstance(event, CheckProgress):
                            # What waits to be written is lost with the process.
                            state.done = max(0, event.done - checks.waiting)
                            state.answers = event.answers
                        ticker.show(event)
                        yield event
        assert result is not None  # it ends so, or raises
        yield result

    @contextmanager
    def log_when_stopped(self) -> Iterator[None]:
        """Says how far a check came that a signal ends."""
        try:
            yield
        except asyncio.CancelledError:
            if self._state is not None:
                log(f"specdeck: {self._state.line()}")
            raise


async def read_again(asked: CheckArguments, known: PromptSet) -> PromptSet:
    """The prompts as they are by now; those that are known where they cannot be read."""
    try:
        return await load_prompts_aside(asked.source, asked.prompt_limit)
    except ConfigError:
        return known  # the check that reads it says what is wrong


async def check_distributions(asked: CheckArguments, prompts: PromptSet) -> int:
    """Distributions at temperature > 0; the exit code."""
    await _require_token(asked)
    state, last = ResumeState(prompts.count, can_resume=False), time.monotonic()
    if prompts.copies:
        log(f"specdeck: {format_count(len(prompts.copies), 'prompt')} left out as copies")
    result: SampledResult | None = None
    try:
        async with open_arms(asked) as pair:
            with open_check_store() as (checks, _):
                events = run_sampled_check(pair, prompts, asked.sampling(), checks)
                async with aclosing(events):
                    async for event in events:
                        if isinstance(event, SampledResult):
                            result = event
                            log_unstored(event)
                        elif isinstance(event, ArmsReady):
                            warn_first(event)
                        elif isinstance(event, DrawProgress):
                            state.done = event.done
                            if event.done and time.monotonic() - last >= _LOG_S:
                                last = time.monotonic()
                                log(f"check: drawn from {event.done} of {event.of} prompts")
    except asyncio.CancelledError:
        log(f"specdeck: {state.line()}")
        raise
    assert result is not None  # it ends so, or raises
    result = await _trip(asked, result)
    data = result.as_json()
    try:
        _print(asked, data, report.sampled_lines)
    finally:
        unwritten = _write_files(asked, data, prompts)
    return CODES[data["verdict"]] or unwritten


@asynccontextmanager
async def open_arms(asked: CheckArguments) -> AsyncIterator[ArmPair]:
    """Both arms, ready to be asked."""
    async with AsyncExitStack() as stack:

        def connect(one: Access) -> CheckedEngine:
            client = one.client()
            stack.push_async_callback(client.close)
            return CheckedEngine(client, one.api_key)

        ours = access(asked.engine, api_key_env=asked.api_key_env)
        theirs = await _reference(asked, ours, stack)
        other = None if theirs is None else connect(theirs)
        pair = ArmPair(connect(ours), other, asked.options(), on_notice=log_waiting)
        yield await stack.enter_async_context(pair)


async def _reference(asked: CheckArguments, ours: Access, stack: AsyncExitStack) -> Access | None:
    """The engine to compare with; None for the same one, pinned."""
    if asked.reference:
        return access(asked.reference, api_key_env=asked.reference_api_key_env)
    if asked.hard:
        return await stack.enter_async_context(start_reference_engine(ours))
    return None


@contextmanager
def open_check_store() -> Iterator[tuple[Checks, SpecdeckError | None]]:
    """The user's store or, where it cannot be written to, one that ends with the command, and why
    it is not the user's."""
    with open_or_spare(open_user_checks, open_scratch_checks) as (checks, failure):
        if failure is not None:
            log_unstored(failure)
        yield checks, failure
        for line in checks.left_out:
            log(f"specdeck: {line}")


def log_unstored(found: CheckResult | SampledResult | SpecdeckError) -> None:
    """Says why the history will not have a check, where it will not."""
    error = found if isinstance(found, SpecdeckError) else found.unstored
    if error is not None:
        log(f"specdeck: this check is not stored: {error.line()}")


def log_waiting(waiting: WaitingForEngine) -> None:
    """One line, in place of the line of progress on a terminal."""
    log(f"specdeck: {waiting.line()}", over=sys.stderr.isatty())


async def _require_token(asked: CheckArguments) -> None:
    """Raises Unauthorized where --trip could do nothing, before a check is made for it."""
    if not asked.trip:
        return
    client = asked.serving().client()
    try:
        if client.token() is None:
            raise Unauthorized(
                "--trip requires the engine's admin token, and there is none", remedy=TOKEN_REMEDY
            )
    finally:
        await client.close()


_Result = TypeVar("_Result", CheckResult, SampledResult)


async def _trip(asked: CheckArguments, result: _Result) -> _Result:
    """Opens the breaker after a verdict of fail, where that was asked for."""
    verdict = result.verdict
    if not asked.trip or verdict.word != "fail":
        return result
    return replace(result, trip=await trip(asked.serving(), verdict.reason, asked.patience))


async def trip(to: Access, reason: str, retry_s: float) -> Trip:
    """Opens the engine's breaker for `reason`, and says what became of it.

    An engine that acknowledges it and goes on drafting has not opened it.
    """
    reset = format_undo(to.url, {"breaker": "closed"})

    async def request(change: Change) -> AppliedChange:
        narrator, client = Narrator(change, to.url), to.client()
        unproven: ChangeNotObserved | None = None
        is_open = True
        try:
            async with require_vllm(client):
                async for event in request_change(to, client, change):
                    narrator.take(event)
                    if isinstance(event, ChangeNotObserved):
                        unproven = event
                if unproven is not None and unproven.reason == "superseded":
                    with suppress(SpecdeckError):  # somebody's k leaves the breaker open
                        is_open = (await client.state()).breaker != "closed"
        except asyncio.CancelledError:
            log(f"specdeck: --trip was interrupted: {narrator.standing()}")
            raise
        finally:
            await client.close()
        if narrator.is_contradicted or not is_open:
            raise EngineError("; ".join(narrator.later))
        said = "the breaker is open, the engine runs target-only"
        if unproven is not None:
            said = f"the engine says that the breaker is open; {unproven.line()}"
        log(f"specdeck: {said}: `{reset}` resets it")
        return narrator.outcome().applied

    made = await open_breaker(
        request, url=to.url, who=find_operator(), reason=reason,
        retry=Retry(retry_s, on_notice=log_waiting),
    )  # fmt: skip
    if made.error is not None and made.undo is not None:
        may_be = f"it is not known whether the breaker is open: {made.error.line()}"
        log(f"specdeck: {may_be}: `{made.undo}` resets it")
    elif made.error is not None:
        log(f"specdeck: the breaker is NOT open: {made.error.line()}")
    return made


def _tell(
    asked: CheckArguments, result: CheckResult, prompts: PromptSet, gauges: ShownGauges | None
) -> int:
    """Prints a check, then writes it down wherever that was asked for; the exit code.

    What cannot be written costs neither the figures nor other files, and a reader who has
    gone costs no file.
    """
    data, unshown = result.as_json(), 0
    try:
        _print(asked, data, report.check_lines)
    finally:
        if gauges is not None:
            unshown = gauges.show(data, time.time())
        unwritten = _write_files(asked, data, prompts)
    return CODES[result.conclusion.word] or unshown or unwritten


def _print(asked: CheckArguments, data: dict[str, Any], lines: Callable[[Data], list[str]]) -> None:
    if asked.every is None:
        print_verdict(data, lambda: lines(data), as_json=asked.as_json)
    elif asked.as_json:
        emit(data)
    else:
        print_lines(*lines(data))


@dataclass(frozen=True, slots=True)
class ShownGauges:
    """The gauges of the last check, and the file that they go to."""

    gauges: CheckGauges
    file: GaugesFile | None

    def show(self, data: Data, t: float) -> int:
        """The outcome of a check that ended at Unix time `t`; 0, or the code of what went wrong."""
        self.gauges.show(data, t)
        return self._write()

    def mark_failed(self) -> None:
        """The check could not be done; the last figures stay."""
        self.gauges.mark_failed()
        self._write()

    def _write(self) -> int:
        return 0 if self.file is None else self.file.write(self.gauges)


async def _open_gauges(asked: CheckArguments) -> ShownGauges | None:
    if asked.metrics_port is None and asked.metrics_file is None:
        return None
    gauges = CheckGauges(access(asked.engine).url)
    if asked.metrics_port is not None:
        await gauges.serve(asked.metrics_port, asked.metrics_address)
    file = None
    if asked.metrics_file is not None:
        file = GaugesFile(asked.metrics_file, after=None if asked.every is None else "check")
    return ShownGauges(gauges, file)


def _write_files(asked: CheckArguments, data: Data, prompts: PromptSet) -> int:
    """Writes reports and bundle, and says what could not be; 0, or the code of such an error.

    One that cannot be written costs none of the others.
    """
    writes: list[Callable[[], None]] = [
        partial(report.write_report, data, path) for path in asked.reports
    ]
    if asked.bundle is not None:
        writes.append(partial(_write_bundle, asked, asked.bundle, data, prompts))
    return max((write_or_log(write) for write in writes), default=0)


def _write_bundle(asked: CheckArguments, path: Path, data: Data, prompts: PromptSet) -> None:
    try:
        case = choose_case(data, asked.case)
    except UsageError as error:  # the prompt did not differ, which is nobody's mistake
        log(f"specdeck: nothing is bundled: {error.line()}")
        return
    if case is None:
        log("specdeck: nothing differs, so there is no case to bundle")
        return
    prompt = prompts.find(case["prompt"])
    if prompt is None or hash_prompt(prompt) != case["prompt_hash"]:
        log(f"specdeck: {prompts.path} was edited, so there is no prompt to bundle")
        return
    keyed = bool(asked.api_key_env or asked.reference_api_key_env)
    settings = asked.options().settings
    report.save_file(path, case_page(data, case, prompt, settings, keyed=keyed))


def warn_first(ready: ArmsReady) -> None:
    """Says first what a check costs the engine's traffic, and where no speculation is tried."""
    if (idle := explain_idle_drafter(*ready.arms)) is not None:
        log(f"specdeck: {idle}")
    for arm in ready.arms:
        if arm.price is not None:
            log(f"specdeck: {arm.price}; --reference URL asks another engine instead")


class Ticker:
    """The progress of a check on stderr, a line that is drawn over on a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last: float | None = None
        self._open = False
        self._known: CheckProgress | None = None
        """The latest progress with figures."""
        self._step: str | None = None
        """As it was printed last."""

    def show(self, event: CheckEvent) -> None:
        """Prints progress, unless it printed some a moment ago."""
        if not isinstance(event, CheckProgress):
            return
        if event.figures is not None:
            self._known = event
        elif self._known is None or event.done != self._known.done:
            return  # the rest of its block comes in the same moment
        else:
            event = replace(event, figures=self._known.figures)
        now, every = time.monotonic(), _TERMINAL_S if self._terminal else _LOG_S
        is_new = self._terminal and event.step != self._step
        recent = self._last is not None and now - self._last < every
        if recent and event.done < event.of and not is_new:
            return
        if self._last is None and event.done:
            self.close()
            log(f"specdeck: resuming after {event.done} prompts; --fresh starts over")
        self._last, self._step = now, event.step
        self._write(progress_line(event))

    def _write(self, text: str) -> None:
        if not self._terminal:
            log(text)
            return
        width = shutil.get_terminal_size().columns  # a second line would not be drawn over
        draw_over(shorten(text, width - 1))
        self._open = True

    def close(self) -> None:
        """Leaves the cursor on a new line."""
        if self._open:
            log("")
            self._open = False


def progress_line(at: CheckProgress) -> str:
    """One line of progress, what matters most first.

    >>> progress_line(CheckProgress(50, 200, 1, 0, 2.5, 60.0))
    'check: 50 of 200 prompts, 1 differs, 1 min left, 2.5 prompts/s'
    >>> progress_line(CheckProgress(0, 50, 0, 0, None, 720.0, None, 37, 250))
    'check: 0 of 50 prompts (37 of 250 answers), 0 differ, 12 min left'
    >>> progress_line(CheckProgress(0, 50, 0, 0, None, None, None, 250, 250, "rechecking 3"))
    'check: 0 of 50 prompts (250 of 250 answers), 0 differ, rechecking 3'
    >>> from specdeck.engine.divergence.running import RunningFigures
    >>> from specdeck.engine.divergence.statistics import Rate
    >>> none, seen = Rate(0, 0), Rate(0, 64)
    >>> found = RunningFigures(Rate(2, 64), seen, none, none, {"near_tie": 2})
    >>> progress_line(CheckProgress(64, 200, 2, 0, None, None, found))
    'check: 64 of 200 prompts, 2 differ: 3.12% (95% 0.38% to 10.84%), near tie 2, \
repeat 0.00% of 64 · batch – · shape –'
    """
    differ = "differs" if at.mismatches == 1 else "differ"
    parts = [f"check: {at.done} of {at.of} prompts", f"{at.mismatches} {differ}"]
    if at.answers and at.done < at.of:
        parts[0] += f" ({at.answers} of {at.answers_of} answers)"
    figures = at.figures if at.figures is not None and at.figures.differ.of else None
    if figures is not None:
        parts[-1] += f": {figures.rate_line()}"
    if at.refused:
        parts.append(f"{at.refused} refused")
    if at.step is not None:
        parts.append(at.step)
    if at.seconds_left is not None:
        parts.append(f"{format_duration(at.seconds_left)} left")
    if figures is not None:
        parts += [figures.classes_line(), figures.floors_line()]
    if at.per_second is not None:
        parts.append(f"{at.per_second:.1f} prompts/s")
    return ", ".join(parts)
