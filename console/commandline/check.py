"""`specdeck check`: does the engine's speculative path still say what the target says?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specdeck.console.commandline.engines import Access, access, key_option
from specdeck.console.commandline.headless import until_signal
from specdeck.console.commandline.talk import emit, say
from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.locations import locations

if TYPE_CHECKING:
    from specdeck.engine.divergence.lab import Plan
    from specdeck.engine.divergence.prompts import PromptSet
    from specdeck.engine.divergence.summary import Outcome
    from specdeck.engine.store.store import Store

CODES = {"pass": 0, "fail": 1, "inconclusive": 1}
"""A gate must not open for what was not shown, so inconclusive is no pass."""


class Share(click.ParamType[float]):
    """A share, as `1.5%` or `0.015`."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The share as a number from 0 to 1, both excluded."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{text} is no share, such as 1.5%", param, ctx)
        if not 0 < share < 1:
            self.fail(f"{text} is no share between 0% and 100%", param, ctx)
        return share


@click.command("check")
@click.argument("engine", metavar="URL")
@click.option("--reference", metavar="URL", help="Another engine to compare with; default: the "
              "same engine with each request pinned to k = 0.")  # fmt: skip
@click.option("--hard", is_flag=True, help="Start the engine's config a second time without "
              "speculation, to compare with.")  # fmt: skip
@click.option("--prompts", "source", default="code", metavar="FILE", show_default=True,
              help="JSONL or text with a prompt a line, or a set: code, chat, tools.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), default=200, metavar="N", show_default=True)
@click.option("--max-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--ignore-eos", is_flag=True, help="Go on to --max-tokens.")
@click.option("--max-mismatch", type=Share(), default="1.5%", show_default=True,
              help="The rate of differing outputs that is still good.")  # fmt: skip
@click.option("--streams", type=click.IntRange(1, 512), default=8, show_default=True,
              help="Requests at once on each engine.")  # fmt: skip
@click.option("--calls", type=click.IntRange(min=1), default=5, show_default=True,
              help="Calls in a session, for the risk that adds up.")  # fmt: skip
@click.option("--model", metavar="NAME", help="Where the engine serves several.")
@click.option("--gentle", is_flag=True, help="Keep out of production's way; takes longer.")
@click.option("--private", is_flag=True, help="Store hashes only: no token of an answer.")
@click.option("--fresh", is_flag=True, help="Do not go on with a run that was cut short.")
@click.option("--patience", type=click.FloatRange(min=0), default=120.0, metavar="S",
              show_default=True, help="How long an engine that is away is waited for.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--report", "reports", multiple=True, metavar="FILE",
              type=click.Path(path_type=Path, dir_okay=False),
              help="Also a file: .json, .xml (JUnit) or .md; may be given again.")  # fmt: skip
@key_option
@click.option("--reference-api-key-env", metavar="NAME", help="The same for --reference.")
def command(**options: Any) -> int:
    """Compare an engine's speculative path with the target alone, token by token.

    Asks both arms and each arm against itself, and weighs what differs. Exit code 0 is a
    pass, 1 a fail or too little to tell.
    """
    from specdeck.engine.divergence.prompts import prompts
    from specdeck.engine.divergence.report import form_of

    if options["hard"] and options["reference"]:
        raise UsageError("--hard and --reference are two references", remedy="give one of them")
    for path in options["reports"]:
        form_of(path)
    found = prompts(options["source"], options["limit"])
    return asyncio.run(until_signal(checked(options, found)))


async def checked(options: dict[str, Any], prompts: PromptSet) -> int:
    """One check, from the engines' addresses to the exit code."""
    from specdeck.engine.divergence.report import text, written

    outcome = await compared(options, prompts)
    data = outcome.as_json()
    for path in options["reports"]:
        written(data, path)
    if options["as_json"]:
        emit(data)
    else:
        click.echo(text(data))
    return CODES[outcome.verdict.word]


async def compared(options: dict[str, Any], prompts: PromptSet) -> Outcome:
    """Runs the check and tells of its progress on stderr."""
    from specdeck.console.commandline.ticker import Ticker
    from specdeck.engine.divergence.lab import Engine, Lab, run
    from specdeck.engine.store.checks import Checks

    async with AsyncExitStack() as stack:

        def engine(one: Access) -> Engine:
            client = one.client()
            stack.push_async_callback(client.close)
            return Engine(client, one.api_key)

        ours = access(options["engine"], api_key_env=options["api_key_env"])
        theirs = await _reference(options, ours, stack)
        lab = Lab(engine(ours), None if theirs is None else engine(theirs), plan(options))
        await stack.enter_async_context(lab)
        checks = Checks(stack.enter_context(_store()))
        ticker = stack.enter_context(Ticker("check", say))
        return await run(lab, prompts, checks, ticker)


def plan(options: dict[str, Any]) -> Plan:
    """What the options ask for."""
    from specdeck.engine.divergence.lab import Plan
    from specdeck.engine.divergence.request import Settings

    return Plan(
        settings=Settings(max_tokens=options["max_tokens"], ignore_eos=options["ignore_eos"]),
        threshold=options["max_mismatch"],
        streams=options["streams"],
        gentle=options["gentle"],
        private=options["private"],
        fresh=options["fresh"],
        calls=options["calls"],
        model=options["model"],
        patience_s=options["patience"],
    )


async def _reference(options: dict[str, Any], ours: Access, stack: AsyncExitStack) -> Access | None:
    """The engine to compare with; None for the same one, pinned."""
    if options["reference"]:
        return access(options["reference"], api_key_env=options["reference_api_key_env"])
    if options["hard"]:
        from specdeck.console.commandline.second import second

        return await stack.enter_async_context(second(ours))
    return None


@contextmanager
def _store() -> Iterator[Store]:
    """The user's store or, where it cannot be used, one that ends with the command."""
    import tempfile

    from specdeck.engine.store.store import Store

    with tempfile.TemporaryDirectory(prefix="specdeck-check-") as spare:
        try:
            store = Store(locations(os.environ).store)
        except SpecdeckError as error:
            say(f"specdeck: this check will be forgotten: {error.line()}")
            store = Store(Path(spare) / "store.sqlite")
        with store:
            yield store
