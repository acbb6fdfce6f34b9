"""What `specdeck check` says while it waits for an engine that has gone away."""

from __future__ import annotations

import sys

from specdeck.console.cli.output import log
from specdeck.engine.client.retry import Waiting


def waits(waiting: Waiting) -> None:
    """One line, in place of the line of progress on a terminal."""
    over = "\r\x1b[K" if sys.stderr.isatty() else ""
    log(f"{over}specdeck: {waiting.line()}")
