"""What is left of a console that ended by a defect: a report in a file, and one line."""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from specdeck import __version__
from specdeck.engine.client.secret import hide_secrets
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.files import replace_file
from specdeck.engine.paths import private
from specdeck.engine.text import printable

KEPT_REPORTS = 10


class Crash(SpecdeckError):
    """A defect ended the console; the remedy names its report."""


def report_crash(
    error: Exception, folder: Path, *, clock: Callable[[], float] = time.time
) -> Crash:
    """Writes a report of `error` for its owner only, and returns what to say of it.

    The report has the way that led there, without any local variable and without secrets.
    """
    text = hide_secrets(f"the console failed: unexpected {type(error).__name__}: {error}")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(clock()))
    about = f"specdeck {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n"
    trace = hide_secrets("".join(traceback.format_exception(error)))
    report = about + "".join(f"{printable(line)}\n" for line in trace.splitlines())
    try:
        path = _write(private(folder), stamp, report)
    except OSError as failure:
        return Crash(text, remedy=f"its report cannot be written: {failure}")
    return Crash(text, remedy=f"the report is {path}")


def _write(folder: Path, stamp: str, report: str) -> Path:
    for old in sorted(folder.glob("console-*.txt"))[: -KEPT_REPORTS + 1]:
        old.unlink(missing_ok=True)
    path = folder / f"console-{stamp}.txt"
    # Its name can be foreseen: what somebody has left there is neither followed nor waited for.
    replace_file(path, report.encode("utf-8", "backslashreplace").decode(), mode=0o600)
    return path
