"""Digests of Python packages as they lie on disk: one that was edited has the version it had.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from specdeck.engine.fingerprint.digest import Read, sha256

_ALWAYS = ("vllm", "sitecustomize", "usercustomize")
"""vLLM's own, and what Python imports by itself: what that patches is in no file of vLLM's."""
_GROUPS = "vllm."
"""What the groups of entry points begin with by which vLLM finds the code of others."""
_OWN = "specdeck"
"""A fact of its own, by its version."""


def choose_packages(
    loaded: Mapping[str, str],
    named: Mapping[str, str],
    *,
    search: Iterable[str],
    installed: Iterable[metadata.Distribution] | None = None,
) -> dict[str, Path]:
    """The packages whose code makes an engine's answers, by name with their file or folder.

    `loaded` are those that its process has loaded, `named` those of classes that vLLM was given by
    name. Of the loaded ones vLLM and its plugins count, and what lies in the folders of the
    `search` path and no `installed` distribution has brought (of this process where none are
    given): a version says nothing of that. Elsewhere lies no source, but what compilers have made.
    """
    found = list(metadata.distributions() if installed is None else installed)
    brought = _list_brought(found)
    folders = set(map(Path, search))
    folders -= {Path(sysconfig.get_path(one)) for one in ("stdlib", "platstdlib")}
    house = (
        name
        for name, place in loaded.items()
        if brought.isdisjoint((name, place)) and Path(place).parent in folders
    )
    names = (*_ALWAYS, *_list_plugins(found), *house)
    chosen = {name: loaded[name] for name in names if name in loaded} | dict(named)
    return {name: Path(chosen[name]) for name in sorted(chosen) if name != _OWN}


def _list_brought(installed: Iterable[metadata.Distribution]) -> set[str]:
    """The packages and modules of distributions, whose versions are facts or need not be.

    By name, and by place where they carry those of others within (`setuptools/_vendor`).
    """
    found: set[str] = set()
    for distribution in installed:
        found.update((distribution.read_text("top_level.txt") or "").split())
        root = str(distribution.locate_file(""))
        for path in distribution.files or ():
            name = path.parts[0] if len(path.parts) > 1 else inspect.getmodulename(path.name)
            found.add(name or "")
            found.add(os.path.join(root, path))
            found.update(os.path.join(root, *path.parts[:n]) for n in range(1, len(path.parts)))
    return found


def _list_plugins(installed: Iterable[metadata.Distribution]) -> Iterator[str]:
    for distribution in installed:
        for point in distribution.entry_points:
            if point.group.startswith(_GROUPS):
                yield point.module.partition(".")[0]


def list_code(place: Path) -> list[Path]:
    """A module's own file, or all Python files in a package's folder; sorted."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.rglob("*.py") if path.is_file())


def digest_code(place: Path, files: Iterable[Path], read: Read = lambda _: None) -> str:
    """Of a module's file; of a package's folder, by its `files` and their places in it.

    `files` are those that `list_code` finds in `place`. `read` is called with how many bytes more
    have been read. Raises OSError for a file that cannot be read.
    """
    if not place.is_dir():
        return sha256(place, read)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(place).as_posix()}\0{sha256(path, read)}\n".encode())
    return digest.hexdigest()
