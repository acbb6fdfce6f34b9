"""The check's screens on real engines: keys, references as people type them, the user's store."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.console.bench import Bench
from specdeck.console.cli.common import open_user_store
from specdeck.console.cli.engines import access
from specdeck.engine.errors import Unsupported

if TYPE_CHECKING:
    from specdeck.engine.client.attach import MonitoredEngine
    from specdeck.engine.divergence.lab import Lab, Plan
    from specdeck.engine.store.checks import Checks


def bench(keys: Mapping[str, str | None], *, reference: str | None = None) -> Bench:
    """For engines whose API keys are `keys`, by URL; a key is sent to no other engine."""

    @asynccontextmanager
    async def labs(engine: MonitoredEngine, other: str | None, plan: Plan) -> AsyncIterator[Lab]:
        from specdeck.engine.client.attach import AttachedEngine
        from specdeck.engine.divergence.lab import Engine, Lab

        if not isinstance(engine, AttachedEngine):
            raise Unsupported(f"{engine.name} is a recording", remedy="attach to its engine")
        ours = Engine(engine.client, keys.get(engine.url))
        if other is None:
            async with Lab(ours, None, plan) as lab:
                yield lab
            return
        to = access(other)
        key = to.api_key or keys.get(to.url)
        client = replace(to, api_key=key).client()
        try:
            async with Lab(ours, Engine(client, key), plan) as lab:
                yield lab
        finally:
            await client.close()

    keyed = any(keys.values())
    return Bench(labs, _store, _scratch, folders=_folders, reference=reference, keyed=keyed)


@contextmanager
def _store() -> Iterator[Checks]:
    from specdeck.engine.store.checks import Checks

    with open_user_store() as store:
        yield Checks(store)


@contextmanager
def _scratch() -> Iterator[Checks]:
    from specdeck.engine.store.checks import Checks
    from specdeck.engine.store.database import Store

    with (
        tempfile.TemporaryDirectory(prefix="specdeck-check-") as folder,
        Store(Path(folder) / "store.sqlite") as store,
    ):
        yield Checks(store)


def _folders() -> Iterator[Path]:
    yield Path.cwd()
    yield Path.home()
    yield Path(tempfile.gettempdir())
