"""Gauges of specdeck's own, for Prometheus and Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.engine.errors import UsageError
from specdeck.engine.files import write_whole
from specdeck.engine.protocol.codec import mend_text

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LONGEST_LABEL = 1_000
"""Characters of a label's value."""


class Exposition:
    """A registry of its own, served to a Prometheus or written for node_exporter."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry

        self.registry: CollectorRegistry = CollectorRegistry()

    @staticmethod
    def label(text: str | None) -> str:
        """A label's value: what an engine says of itself, as it can be encoded; empty for None."""
        return mend_text((text or "")[:_LONGEST_LABEL])

    async def serve(self, port: int, address: str = "127.0.0.1") -> None:
        """Answers a Prometheus on `port` of one address for as long as the process runs.

        Raises UsageError for a port that cannot be bound, and for what is no address.
        """
        from specdeck.engine.metrics.scrape_server import serve_metrics

        try:
            await serve_metrics(self.registry, port, address)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no name of a host"
            raise UsageError(
                f"cannot bind port {port} of {mend_text(address[:_LONGEST_LABEL])}: {why}",
                remedy="check --metrics-port and --metrics-address",
            ) from error

    def write(self, path: Path) -> None:
        """Writes them for node_exporter's textfile collector, at once or not at all.

        Raises UsageError where the file cannot be written.
        """
        from prometheus_client import generate_latest

        try:
            with write_whole(path) as file:
                file.write(generate_latest(self.registry))
        except OSError as error:
            why = (error.strerror or "cannot be written").lower()
            raise UsageError(f"{path}: {why}", remedy="check --metrics-file") from error
