"""A second engine beside one that specdeck started: the same config without speculation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from specdeck.console.cli.engines import Access
from specdeck.console.cli.headless import started
from specdeck.console.cli.output import log
from specdeck.console.cli.stop import Teller
from specdeck.engine.errors import Unsupported
from specdeck.engine.paths import locations


@asynccontextmanager
async def second(ours: Access) -> AsyncIterator[Access]:
    """Runs the reference while it is held, and leaves nothing of it.

    Raises Unsupported for an engine that specdeck did not start here, ConfigError where
    there is no memory for another, StartFailed when it does not come up.
    """
    from specdeck import __version__
    from specdeck.console.cli.headless import answers
    from specdeck.engine.config.loader import load
    from specdeck.engine.launch.launcher import Launch
    from specdeck.engine.launch.preflight import findings, raise_errors

    if ours.record is None or ours.record.config is None:
        raise Unsupported(
            f"{ours.url} was not started here by specdeck, so its config is not known",
            remedy="start a second engine yourself and give --reference URL",
        )
    config = load(Path(ours.record.config)).reference()
    found = findings(config, port=None, environment=os.environ)
    raise_errors(config, found)
    for finding in found:
        if finding.level == "warning":
            log(f"warning: {finding.line()}")
    launch = Launch(
        config,
        locations=locations(os.environ),
        answers=answers,
        environment=os.environ,
        port="auto",
        version=__version__,
    )
    try:
        await started(launch)
        assert launch.record is not None
        yield Access(launch.url, launch.record, ours.api_key)
    finally:
        await launch.stop(on_progress=Teller(launch.name))
