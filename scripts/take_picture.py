"""Takes the picture at the top of README: `make demo`, a few keys, and `s`.

    python scripts/take_picture.py docs/live.svg

Starts a real engine in a terminal of 120x40 and leaves nothing behind. The story alone takes more
than a minute, the engine's start half a minute or, on a busy machine, some.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping
from fcntl import ioctl
from pathlib import Path

import pyte

COLUMNS, ROWS = 120, 40
START_S, SAVE_S = 300.0, 15.0
STORY = (("", 20.0), ("t", 10.0), ("t", 15.0), ("a", 20.0))
"""Keys, and the seconds of work that follow each."""


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._leader, follower = pty.openpty()
        ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(follower)
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)

    def press(self, keys: str) -> None:
        """Types `keys`."""
        os.write(self._leader, keys.encode())

    def wait(self, seconds: float, done: Callable[[str], object] = lambda text: False) -> bool:
        """Reads for `seconds`, or until `done` holds of the screen; whether it did."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self._leader], [], [], min(left, 0.2))
            try:
                text = os.read(self._leader, 65536) if ready else b""
            except OSError:  # the program has ended
                return False
            self._stream.feed(text)
            if done("\n".join(self._screen.display)):
                return True
        return False


def take(picture: Path, home: Path) -> None:
    """Runs the demo, tells its story and saves the screen as `picture`."""
    environment = {
        **os.environ,
        "LOGNAME": "operator",
        "SPECDECK_HOME": str(home),
        "XDG_PICTURES_DIR": str(home),
    }
    specdeck = str(Path(sys.executable).with_name("specdeck"))
    print(f"starting an engine, up to {START_S:.0f} s", file=sys.stderr)
    terminal = Terminal([specdeck, "demo"], environment)
    try:
        if not terminal.wait(START_S, lambda text: re.search(r"observed \d", text)):
            sys.exit("the engine did not start")
        for keys, seconds in STORY:
            print(f"the next {seconds:.0f} s of the story", file=sys.stderr)
            terminal.press(keys)
            terminal.wait(seconds)
        terminal.press("s")
        if not terminal.wait(SAVE_S, lambda text: any(home.glob("*.svg"))):
            sys.exit("no picture was saved")
        shutil.copy(next(home.glob("*.svg")), picture)
    finally:
        terminal.process.terminate()
        terminal.wait(10.0, lambda text: terminal.process.poll() is not None)
        stop_engines(specdeck, environment)


def stop_engines(specdeck: str, environment: Mapping[str, str]) -> None:
    """Ends the engines that were started under this home."""
    listed = subprocess.run([specdeck, "ps", "--json"], env=environment, stdout=subprocess.PIPE)
    for engine in json.loads(listed.stdout or "[]"):
        subprocess.run([specdeck, "stop", engine["name"]], env=environment, check=True)


def main() -> None:
    """Takes the picture that the command line names."""
    with tempfile.TemporaryDirectory() as folder:
        take(Path(sys.argv[1]), Path(folder))


if __name__ == "__main__":
    main()
