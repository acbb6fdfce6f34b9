"""Older names of what is in `output`."""

from specdeck.console.cli.output import duration as duration
from specdeck.console.cli.output import emit as emit
from specdeck.console.cli.output import log as say
from specdeck.console.cli.output import table as table

__all__ = ["duration", "emit", "say", "table"]
