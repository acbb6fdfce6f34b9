"""Ends an engine that was started for a command alone when that command is gone.

`guard FOLDER NAME PID`, a process of its own: its stdin is a pipe of the command's, and ends with
it, also where the command was killed and could tidy up nothing.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from specdeck.engine.errors import EngineError
from specdeck.engine.fingerprint.secret_names import drop_secrets
from specdeck.engine.launch.registry import Record, Registry
from specdeck.engine.launch.stop import stop_engine

_PATIENCE_S = 3.0


class Guard:
    """The process beside an engine; it ends when it is closed, and so does the engine."""

    def __init__(self, record: Record, folder: Path, environment: Mapping[str, str]) -> None:
        """`folder` is the registry's. Raises OSError where there can be no process."""
        words = (str(folder), record.name, str(record.pid))
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "specdeck.engine.launch.guard", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=drop_secrets(environment),
            # What ends the command's processes by their session or group must not end this one.
            start_new_session=True,
        )

    def close(self) -> None:
        """Lets it end; the engine should have ended before."""
        if self._popen.stdin is not None:
            with suppress(BrokenPipeError):
                self._popen.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_PATIENCE_S)


def main(argv: Sequence[str]) -> int:
    """Run as a process; the exit code, 3 where the engine cannot be ended."""
    folder, name, pid = argv
    while os.read(0, 1024):
        pass
    registry = Registry(Path(folder))
    record = registry.find(name)
    if record is None or record.pid != int(pid):
        return 0  # it has ended in order
    try:
        asyncio.run(stop_engine(record, registry))
    except EngineError:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
