"""`specdeck check URL --history`: the checks of an engine so far, side by side."""

from __future__ import annotations

from typing import Any

import click

from specdeck.console.cli.common import open_user_store
from specdeck.console.cli.engines import access
from specdeck.console.cli.output import emit, log
from specdeck.engine.divergence.history import PAST_CHECKS_HEAD, past_check_cells, past_checks
from specdeck.engine.store.checks import Checks
from specdeck.engine.text import format_table

SHOWN = 30


def shown(options: dict[str, Any]) -> int:
    """Prints the table, or JSON; the engine need not run."""
    url = access(options["engine"]).url
    with open_user_store() as store:
        found = past_checks(Checks(store).history(url, options["limit"] or SHOWN))
    if options["as_json"]:
        emit([line.as_json() for line in found])
    elif found:
        click.echo(format_table(PAST_CHECKS_HEAD, map(past_check_cells, found)))
    else:
        log(f"specdeck: no check of {url} has been finished here")
    return 0
