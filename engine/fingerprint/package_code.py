"""Digests of Python packages as they lie on disk: one that was edited has the version it had.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import csv
import hashlib
import inspect
import os
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from specdeck.engine.fingerprint.digest import Read, sha256

_ALWAYS = ("vllm", "sitecustomize", "usercustomize")
"""vLLM's own, and what Python imports by itself: what that patches is in no file of vLLM's."""
_GROUPS = "vllm."
"""What the groups of entry points begin with by which vLLM finds the code of others."""
_ELSEWHERE = ("specdeck", "transformers_modules")
"""A fact of its own, by its version; and where transformers keeps the code of all models that a
user ever had: that of the engine's is among the facts of its models."""


def choose_packages(
    loaded: Mapping[str, str],
    named: Mapping[str, str],
    *,
    search: Iterable[str],
    installed: Iterable[metadata.Distribution] | None = None,
) -> dict[str, Path]:
    """The packages whose code makes an engine's answers, by name with their file or folder.

    `loaded` are those that its process has loaded, `named` those of classes that vLLM was given by
    name. Of the loaded ones vLLM and its plugins count, and what no `installed` distribution (of
    this process where none are given) has brought: a version says nothing of that. A library
    counts where it lies in a folder of the `search` path: elsewhere it is what a compiler has made.
    """
    found = list(metadata.distributions() if installed is None else installed)
    files = [path for one in found for path in _list_files(one)]
    brought = {_name_package(path) for _, path in files}
    brought.update(name for one in found for name in _list_names(one))
    python = {Path(sysconfig.get_path(one)) for one in ("stdlib", "platstdlib")}
    folders = set(map(Path, search)) - python
    house = (
        name
        for name, place in loaded.items()
        if name not in brought
        and _is_source(Path(place), folders, python)
        and not _is_carried(place, files)
    )
    names = (*_ALWAYS, *_list_plugins(found), *house)
    chosen = {name: loaded[name] for name in names if name in loaded} | dict(named)
    return {name: Path(chosen[name]) for name in sorted(chosen) if name not in _ELSEWHERE}


def _is_source(place: Path, folders: Collection[Path], python: Collection[Path]) -> bool:
    """Whether somebody has written it; a folder may have left the search path once it is loaded."""
    return place.parent in folders or not (place.suffix == ".so" or place.parent in python)


def _list_files(distribution: metadata.Distribution) -> Iterator[tuple[str, str]]:
    """The folder that a distribution lies in, and each of its files within."""
    root = str(distribution.locate_file(""))
    record = distribution.read_text("RECORD")
    # Python's own reader of it takes seconds for an environment.
    rows = (
        csv.reader(record.splitlines()) if record else ((str(p),) for p in distribution.files or ())
    )
    for row in rows:
        yield root, row[0]


def _name_package(path: str) -> str:
    """What is imported by it, where anything is."""
    folder, slash, _ = path.partition("/")
    return folder if slash else inspect.getmodulename(path) or ""


def _list_names(distribution: metadata.Distribution) -> list[str]:
    return (distribution.read_text("top_level.txt") or "").split()


def _is_carried(place: str, files: Iterable[tuple[str, str]]) -> bool:
    """Whether a distribution has it within, as `setuptools/_vendor` has packages of others."""
    for root, path in files:
        whole = f"{root}/{path}"
        if whole == place or whole.startswith(f"{place}/"):
            return True
    return False


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
        name = os.fsencode(path.relative_to(place))
        digest.update(name + f"\0{sha256(path, read)}\n".encode())
    return digest.hexdigest()
