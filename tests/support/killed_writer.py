"""Writes a black box as fast as it can until it is killed: `python -m tests.support.killed_writer`.

Says the number of each reading once it is committed. Reading number n is `busy_sample(n)`, with an
event and a document now and then.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import between
from tests.support.readings import START, STATE, URL
from tests.support.recorded_engine import busy_sample

ROWS = 20
"""Of a block, so that a kill often meets the writing of one."""


def write(path: Path) -> None:
    """Writes readings after the last one that is there, for ever."""
    box = open_box(path, URL, name="demo", rows=ROWS)
    assert box is not None
    # Only now: a commit that a kill has cut short of being told shows once a writer has opened it.
    with closing(History(path)) as history:
        n = 0 if math.isnan(history.last) else round(history.last - START) + 1
    before = None
    while True:
        sample = busy_sample(n)
        window = None if before is None else between(before, sample)
        box.append(Reading(START + n, URL, sample=sample, window=window, state=STATE))
        if n % 7 == 0:
            box.add_event(BoxEvent(START + n, "other", f"event {n}"))
        os.write(1, f"{n}\n".encode())
        n, before = n + 1, sample


def kill_writers(path: Path, kills: int, moments: random.Random) -> list[int]:
    """Kills so many writers of one file at random moments; how many readings each committed.

    Raises AssertionError where something that was committed is not there, or the file is damaged.
    """
    committed: list[int] = []
    events: set[str] = set()
    for _ in range(kills):
        said = _kill_one(path, moments)
        events |= {f"event {n}" for n in said if n % 7 == 0}
        with closing(History(path)) as history:
            found = [round(one.t - START) for one in history.readings(0, 1e11)]
            assert history.damage is None, history.damage
            # What was committed and not yet said may be there, too.
            assert found == list(range(len(found)))
            assert len(found) in (said[-1] + 1, said[-1] + 2)
            for n in {said[0], said[len(said) // 2], said[-1]}:
                one = history.reading_at(START + n)
                assert one is not None
                assert one.sample == busy_sample(n)
            assert events <= {event.text for event in history.events(START, 1e11, 10**6)}
        committed.append(len(said))
    return committed


def _kill_one(path: Path, moments: random.Random) -> list[int]:
    """What a writer says it has committed before it is killed."""
    command = [sys.executable, "-m", "tests.support.killed_writer", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        try:
            head = writer.stdout.readline()
            time.sleep(moments.uniform(0.0, 0.3))
        finally:
            writer.send_signal(signal.SIGKILL)
        said = head + writer.stdout.read()
    assert head, "the writer did not begin"
    return [int(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        write(Path(sys.argv[1]))
