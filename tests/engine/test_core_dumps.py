"""What a crash leaves behind of the memory of a process."""

import os
import subprocess
import sys

_PROGRAM = """
import resource, subprocess, sys
from unittest import mock
from specdeck.engine import core_dumps
import specdeck.__main__

def look():
    print(resource.getrlimit(resource.RLIMIT_CORE)[0])
    child = subprocess.Popen(["sh", "-c", "read go; ulimit -c"], stdin=subprocess.PIPE)
    if "engine" in sys.argv:
        core_dumps.give_back_core_dumps(child.pid)
    sys.stdout.flush()
    child.communicate(b"go\\n")

with mock.patch("specdeck.console.cli.main.main", look):
    specdeck.__main__.main()
"""


def limits(*words: str) -> list[str]:
    """The soft limits in KiB blocks of a command and of a process that it starts."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -S -c 8 && exec "$@"', "sh", sys.executable, "-c", _PROGRAM,
         *words],
        capture_output=True, text=True, check=True, env=os.environ,
    )  # fmt: skip
    return done.stdout.split()


def test_a_command_leaves_no_core_dump_and_nothing_it_starts_does() -> None:
    assert limits() == ["0", "0"]


def test_an_engine_keeps_the_limit_that_the_command_began_with() -> None:
    own, engines = limits("engine")
    assert own == "0"
    assert engines == "8"
