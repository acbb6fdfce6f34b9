"""Which files changed after an engine began to start: what lies there may not be what it loaded.

An engine reads its files over a minute or more of a start, and its facts are read after that. A
file system keeps the time at which an inode last changed, a move included, and no program can set
it as it can a file's age.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from specdeck.engine.fingerprint.sources import Text, text

_MOST_LINKS = 40
"""Links within links, as many as Linux follows."""
_MOUNTS = "/proc/self/mountinfo"
_FUSE = "fuse"
"""What the types of those file systems begin with whose folders may be of the moment at which they
are looked at, as where an object store has none."""


class StartChanges:
    """Looks for changes since `began`, in seconds since the epoch; finds none where it is None.

    Times are compared with those of this machine's clock: a file server's that runs behind hides
    a change, and one that runs ahead makes one of what came shortly before the start.
    """

    def __init__(self, began: float | None, text: Text = text) -> None:
        self._began = began
        self._text = text
        self._folders: dict[Path, float] = {}
        """When the newest link on the way to a folder was made."""

    def describe(self, path: Path, *, entries: bool = False) -> str | None:
        """That the file or folder at `path`, or a link on the way to it, changed, and when.

        A file counts as changed by its content, its mode, or a move into its place; a folder, with
        `entries`, by a move of its own and by what came into it or left it, except on FUSE. None
        for what did not change, and for what is not there.
        """
        if self._began is None:
            return None
        try:
            changed = self._find_newest(path, entries=entries)
        except (OSError, ValueError):
            return None
        if changed <= self._began:
            return None
        when = datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"changed at {when}, after the engine began to start"

    def describe_any(self, paths: Iterable[Path]) -> str | None:
        """The first of them that changed."""
        return next(filter(None, map(self.describe, paths)), None)

    def _find_newest(self, path: Path, *, entries: bool) -> float:
        found = path.stat()
        is_told = not stat.S_ISDIR(found.st_mode) or (entries and not self._is_fuse(found.st_dev))
        own = found.st_ctime if is_told else 0.0
        return max(own, self._find_newest_link(Path(os.path.abspath(path)), _MOST_LINKS))

    def _is_fuse(self, device: int) -> bool:
        wanted = f"{os.major(device)}:{os.minor(device)}"
        for line in (self._text(_MOUNTS) or "").splitlines():
            # `36 35 0:52 / /models rw - fuse.rclone remote: rw`, see proc_pid_mountinfo(5).
            about, _, kind = line.partition(" - ")
            if about.split()[2:3] == [wanted]:
                return kind.startswith(_FUSE)
        return False

    def _find_newest_link(self, path: Path, most: int) -> float:
        """When the newest link on the way to `path` was made; 0 where there is none."""
        if path == path.parent or not most:
            return 0.0
        above = self._folders.get(path.parent)
        if above is None:
            above = self._folders[path.parent] = self._find_newest_link(path.parent, most)
        with suppress(OSError):
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                target = Path(os.path.abspath(path.parent / os.readlink(path)))
                return max(above, found.st_ctime, self._find_newest_link(target, most - 1))
        return above
