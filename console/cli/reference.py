"""A second engine beside one that specdeck started: the same config without speculation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from specdeck.console.cli.engines import Access
from specdeck.console.cli.output import log
from specdeck.console.cli.processes import StopReporter
from specdeck.console.cli.run import follow_start, open_launch
from specdeck.engine.config.loader import load as load_config
from specdeck.engine.errors import Unsupported
from specdeck.engine.launch.ownership import PortOwner
from specdeck.engine.launch.preflight import findings, raise_errors


@asynccontextmanager
async def start_reference_engine(ours: Access) -> AsyncIterator[Access]:
    """Runs the reference while it is held, and leaves nothing of it.

    Raises Unsupported for an engine that specdeck did not start here, ConfigError where
    there is no memory for another, StartFailed when it does not come up.
    """
    if ours.record is None or ours.record.config is None:
        raise Unsupported(
            f"{ours.url} was not started here by specdeck, so its config is not known",
            remedy="start a second engine yourself and give --reference URL",
        )
    config = load_config(Path(ours.record.config)).reference()
    found = findings(config, port=None, environment=os.environ)
    raise_errors(config, found)
    for finding in found:
        if finding.level == "warning":
            log(f"warning: {finding.line()}")
    launch = open_launch(config, port="auto")
    try:
        await follow_start(launch)
        assert launch.record is not None
        yield Access(launch.url, launch.record, ours.api_key, owner=PortOwner(launch.record))
    finally:
        await launch.stop(on_progress=StopReporter(launch.name))
