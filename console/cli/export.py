"""`specdeck export`: what was recorded of an engine as CSV."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path

import click

from specdeck.console.cli.common import black_box_folder
from specdeck.console.cli.engines import access
from specdeck.console.cli.file_options import OutputFile
from specdeck.console.cli.output import log, print_lines
from specdeck.console.cli.span import read_span
from specdeck.engine.blackbox.folder import open_history
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.table import write_rows
from specdeck.engine.client.address import refuse_credentials
from specdeck.engine.errors import ConfigError, Place, UsageError
from specdeck.engine.files import write_whole
from specdeck.engine.incident.archive import extract_recording, is_archive, refuse_existing
from specdeck.engine.text import format_count, parse_duration

_AT_ONCE = 500


@click.command("export")
@click.argument("engine", metavar="URL|NAME|FILE")
@click.option("--last", metavar="T", help="How much of the past, such as 30m; default: all.")
@click.option("--since", "--from", "start", metavar="T", help="Since when, such as 03:10 or -20m.")
@click.option("--until", "--to", "end", metavar="T", help="Until when; default: the end.")
@click.option(
    "--every", metavar="T", help="One row for each so long, such as 1m; default: each reading."
)
@click.option(
    "--output", "-o", metavar="F", type=OutputFile(is_stdout=True),
    help="The file to write; default, and with -: stdout.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def command(
    engine: str,
    last: str | None,
    start: str | None,
    end: str | None,
    every: str | None,
    output: Path | None,
    force: bool,
) -> int:
    """Write what was recorded as CSV: counters, gauges and figures, with units in their names.

    FILE is a black box or an incident file. Figures of a row are of the time since the row before;
    what is not known is empty.
    """
    seconds = None if every is None else read_step(every)
    if output is not None:
        refuse_existing(output, force=force)
    with ExitStack() as stack:
        history = open_recorded(engine, stack)
        since, until = float("-inf"), float("inf")
        if last or start or end:
            # The past of a recording is counted from its end, that of an engine from now.
            is_file = Path(engine).is_file()
            span = read_span(last, start, end, history.last if is_file else time.time())
            since, until = span.start, span.end
        rows = write_rows(history, since, until, seconds)
        if output is None:
            head = next(rows)
            print_lines(head)
            while lines := list(islice(rows, _AT_ONCE)):
                print_lines(*lines)
        else:
            count = write_file(output, rows, force=force)
            log(f"specdeck: {format_count(count, 'row')} in {output}")
        if history.damage is not None:
            log(f"specdeck: {history.damage}")
    return 0


def open_recorded(engine: str, stack: ExitStack) -> History:
    """The recording of an engine, a black box, or an incident file; raises UsageError without."""
    path = Path(engine)
    if is_archive(path):
        return stack.enter_context(closing(History(stack.enter_context(extract_recording(path)))))
    wanted, name = engine, None
    if path.suffix in (".db", ".zip") and not path.exists():
        raise ConfigError("no such file", place=Place(path))
    if not path.is_file():
        refuse_credentials(engine)
        with suppress(UsageError):  # a name that only its recording knows
            wanted, name = (to := access(engine)).url, to.name
    return stack.enter_context(closing(open_history(black_box_folder(), wanted, name)))


def read_step(text: str) -> float:
    """Seconds of a row; raises UsageError for what is no such time.

    >>> read_step("1m")
    60.0
    """
    try:
        return max(parse_duration(text), 0.001)
    except UsageError:
        raise UsageError(f"--every {text[:40]} is no time", remedy="give one such as 1m") from None


def write_file(path: Path, lines: Iterable[str], *, force: bool) -> int:
    """Writes lines to a file that is there whole or not at all; how many after the first.

    Raises UsageError where there is one already, unless `force`.
    """
    count = -1
    try:
        with write_whole(path, mode=0o600, over=force) as file:
            for line in lines:
                file.write(f"{line}\n".encode())
                count += 1
    except FileExistsError:
        refuse_existing(path, force=force)
        raise
    return count
