"""The check's screens on real engines: keys, references as people type them, the user's store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.console.cli.common import open_user_store
from specdeck.console.cli.engines import Access, access
from specdeck.console.state.check import CheckContext
from specdeck.engine.client.attach import AttachedEngine
from specdeck.engine.client.secret import Secret
from specdeck.engine.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from specdeck.engine.client.attach import MonitoredEngine
    from specdeck.engine.operations.check import ArmPair, CheckOptions
    from specdeck.engine.store.checks import Checks


def open_check_context(
    keys: Mapping[str, Secret | None],
    *,
    known: Iterable[Access] = (),
    reference: str | None = None,
) -> CheckContext:
    """For engines whose API keys are `keys`, by URL; a key is sent to no other engine.

    The `known` engines stay the ones they are: whoever gets the port of one later is not asked.
    """
    found = {to.url: to for to in known}

    @asynccontextmanager
    async def open_arms(engine: MonitoredEngine, options: CheckOptions) -> AsyncIterator[ArmPair]:
        from specdeck.engine.operations.check import ArmPair, CheckedEngine

        if not isinstance(engine, AttachedEngine):
            raise Unsupported(f"{engine.name} is a recording", remedy="attach to its engine")
        ours, theirs = CheckedEngine(engine.client, keys.get(engine.url)), None
        async with AsyncExitStack() as stack:
            if options.reference is not None:
                to = access(options.reference)
                to = found.get(to.url, to)
                theirs = CheckedEngine(to.client(), to.api_key)
                stack.push_async_callback(theirs.client.close)
            yield await stack.enter_async_context(ArmPair(ours, theirs, options))

    keyed = any(keys.values())
    return CheckContext(
        open_arms,
        open_user_checks,
        open_scratch_checks,
        folders=_folders,
        reference=reference,
        keyed=keyed,
    )


@contextmanager
def open_user_checks() -> Iterator[Checks]:
    """Those in the user's store; raises SpecdeckError where it cannot be used."""
    from specdeck.engine.store.checks import Checks

    with open_user_store() as store:
        yield Checks(store)


@contextmanager
def open_scratch_checks() -> Iterator[Checks]:
    """A store of its own, which is forgotten."""
    from specdeck.engine.scratch import scratch_folder
    from specdeck.engine.store.checks import Checks
    from specdeck.engine.store.database import Store

    with (
        scratch_folder("specdeck-check") as folder,
        Store(folder / "store.sqlite") as store,
    ):
        yield Checks(store)


def _folders() -> Iterator[Path]:
    yield Path.cwd()
    yield Path.home()
    from specdeck.engine.scratch import find_temporary

    with suppress(UsageError):
        yield find_temporary()
