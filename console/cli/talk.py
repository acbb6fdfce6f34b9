"""Older names of what is in `output`."""

from specdeck.console.cli.output import emit as emit
from specdeck.console.cli.output import format_duration as duration
from specdeck.console.cli.output import format_table as table
from specdeck.console.cli.output import log as say

__all__ = ["duration", "emit", "say", "table"]
