"""Where specdeck keeps its files: the XDG folders, or all of them under SPECDECK_HOME."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specdeck.engine.errors import UsageError
from specdeck.engine.files import make_private

HOME_VARIABLE = "SPECDECK_HOME"
"""Names the environment variable that puts every folder under one."""


@dataclass(frozen=True, slots=True)
class Locations:
    """The folders of one user; naming one does not create it."""

    state: Path
    """Engines that run, their tokens and logs."""
    cache: Path
    """What can be made again: deepened models."""
    data: Path
    """What cannot: the store."""
    config: Path
    """The user's settings, keys and themes."""

    @property
    def engines(self) -> Path:
        """One record for each engine that specdeck started."""
        return self.state / "engines"

    @property
    def tokens(self) -> Path:
        """One admin token for each engine that specdeck started."""
        return self.state / "tokens"

    @property
    def logs(self) -> Path:
        """One log for each start of an engine."""
        return self.state / "logs"

    @property
    def crashes(self) -> Path:
        """One report for each crash of the console."""
        return self.state / "crashes"

    @property
    def models(self) -> Path:
        """Models made from others, such as the deepened demo target."""
        return self.cache / "models"

    @property
    def pins(self) -> Path:
        """One pin for each engine whose pin was given no place of its own."""
        return self.data / "pins"

    @property
    def black_boxes(self) -> Path:
        """One black box for each engine that was recorded."""
        return self.data / "blackbox"

    @property
    def store(self) -> Path:
        """The SQLite file of recordings, actions and start durations."""
        return self.data / "specdeck.sqlite"


def locations(environment: Mapping[str, str]) -> Locations:
    """The folders that `environment` asks for; raises UsageError for a user's that there is not.

    >>> locations({"SPECDECK_HOME": "/tmp/deck"}).engines.as_posix()
    '/tmp/deck/state/engines'
    """
    home = environment.get(HOME_VARIABLE)
    if home:
        try:
            root = Path(home).expanduser().absolute()
        except RuntimeError:
            raise UsageError(
                f"{HOME_VARIABLE} names the home of a user that there is not",
                remedy="give it as a path",
            ) from None
        return Locations(root / "state", root / "cache", root / "data", root / "config")
    from platformdirs import PlatformDirs  # reads the environment of this process

    dirs = PlatformDirs("specdeck", appauthor=False)
    try:
        return Locations(
            dirs.user_state_path, dirs.user_cache_path, dirs.user_data_path, dirs.user_config_path
        )
    except RuntimeError:  # as in a container, for a user that it does not know
        raise UsageError(
            "this user has no home folder", remedy=f"set HOME, or {HOME_VARIABLE} to a folder"
        ) from None


def private(folder: Path) -> Path:
    """`folder`, made for its owner only where it does not exist."""
    make_private(folder)
    return folder
