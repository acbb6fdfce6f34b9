"""Where a picture of the screen is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from specdeck.engine.errors import UsageError
from specdeck.engine.files import write_whole
from specdeck.engine.scratch import find_temporary


def folders() -> Iterator[Path]:
    """Pictures and downloads of the user, the current folder, the one for temporary files."""
    import platformdirs

    yield platformdirs.user_pictures_path()
    yield platformdirs.user_downloads_path()
    yield Path.cwd()
    with suppress(UsageError):
        yield find_temporary()


def write_picture(svg: str, folder: Path, name: str) -> str:
    """Writes a picture into `folder` for its owner only; where it is.

    Answers and prompts may be on it. Raises OSError, also where there is a file of the name.
    """
    path = folder / name
    with write_whole(path, mode=0o600, over=False) as file:
        file.write(svg.encode("utf-8", "replace"))
    return str(path)


def save(write: Callable[[Path], str], choices: Iterable[Path]) -> str:
    """Has `write` put something into the first folder that is there and takes it; where it is.

    Raises the last OSError when none of them takes it.
    """
    refused: OSError = FileNotFoundError("no folder to keep it in")
    for folder in choices:
        if not folder.is_dir():
            continue
        try:
            return abbreviate_home(Path(write(folder)))
        except OSError as error:
            refused = error
    raise refused


def abbreviate_home(path: Path) -> str:
    """The path as short as it can be said.

    >>> abbreviate_home(Path.home() / "Pictures" / "a.svg")
    '~/Pictures/a.svg'
    """
    home = Path.home()
    return f"~{os.sep}{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
