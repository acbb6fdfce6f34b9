"""Digests of Python packages as they lie on disk: one that was edited has the version it had.

The standard library only: it runs in a process beside the engine.
"""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from importlib.machinery import all_suffixes
from pathlib import Path

from specdeck.engine.fingerprint.digest import Read, sha256
from specdeck.engine.fingerprint.distributions import Brought

Places = dict[str, tuple[Path, ...]]
"""Files and folders of packages by their name."""

BY_PATH = "loaded by path"
"""What stands for all modules that their loader named as it liked, maybe anew at each start."""
_DRAWN = re.compile(r"\d{5,}|[0-9a-fA-F]{8,}|(?<![a-z0-9])tmp[a-z0-9_]{8}")
"""In a name that is drawn: of a hash, or of a number of the process, or of tempfile's."""
_PROGRAM = "__main__"
"""What a process was started with."""
_ALWAYS = ("vllm", "sitecustomize", "usercustomize")
"""vLLM's own, and what Python imports by itself: what that patches is in no file of vLLM's."""
_GROUPS = "vllm."
"""What the groups of entry points begin with by which vLLM finds the code of others."""
_ELSEWHERE = ("specdeck", "transformers_modules", "_virtualenv")
"""A fact of its own, by its version; where transformers keeps the code of all models that a user
ever had, as that of the engine's is among the facts of its models; and what virtualenv puts into
each environment."""
_RUN = ("import ", "import\t")
"""What a line of a `.pth` file begins with that Python runs at its start."""
_MOST_LINKED = 5_000
"""Entries of a linked folder of code."""
_SITES = ("site-packages", "dist-packages")
"""Folders whose `.pth` files Python reads, as those of other folders to import from it does not."""
_LARGEST = 1_000_000
"""Bytes of such a file: a larger one is a checkpoint of torch's, whose suffix it is as well."""


def choose_packages(
    loaded: Mapping[str, str],
    named: Mapping[str, str],
    *,
    search: Iterable[str],
    brought: Brought,
) -> Places:
    """The packages whose code makes an engine's answers.

    `loaded` are those that its processes have loaded, `named` those of classes that vLLM was given
    by name. Of the loaded ones vLLM and its plugins count, and house code on or off the `search`
    path, see `choose_house`.
    """
    names = (*_ALWAYS, *_list_plugins(metadata.distributions()))
    known = {name: place for name, place in loaded.items() if _top(name) in names} | {**named}
    others = {name: place for name, place in loaded.items() if name not in known}
    chosen: Places = {name: (_locate(place),) for name, place in known.items()}
    chosen |= choose_house(others, search=search, brought=brought)
    return {name: chosen[name] for name in sorted(chosen) if _top(name) not in _ELSEWHERE}


def choose_house(
    loaded: Mapping[str, str],
    *,
    search: Iterable[str],
    brought: Brought,
) -> Places:
    """What of `loaded` neither vLLM and specdeck nor what they require has `brought`.

    Python's own does not count, and a library only where it lies in a folder of the `search` path:
    elsewhere it is what a compiler has made. `BY_PATH` has all whose names say nothing.
    """
    python = {os.path.realpath(sysconfig.get_path(one)) for one in ("stdlib", "platstdlib")}
    folders = set(map(os.path.realpath, search)) - python
    found, by_path = Places(), set[Path]()
    for name, place in loaded.items():
        if _top(name) in _ELSEWHERE or brought.has(name, place):
            continue
        is_found_by_name = _is_found_by_name(name, Path(place), folders)
        if not is_found_by_name and not _is_source(Path(place), python):
            continue
        if name == _PROGRAM or (is_found_by_name and not _DRAWN.search(name)):
            found[name] = (_locate(place),)
        else:
            by_path.add(_locate(place))
    return found | ({BY_PATH: tuple(sorted(by_path))} if by_path else {})


def _top(name: str) -> str:
    return name.partition(".")[0]


def _locate(place: str) -> Path:
    """Where it lies on disk: what is in an archive counts by all of that."""
    found = Path(place)
    if os.path.lexists(found):
        return found
    holder = next((one for one in found.parents if os.path.lexists(one)), found)
    return holder if holder.is_file() else found


def _is_found_by_name(name: str, place: Path, folders: Collection[str]) -> bool:
    """Whether an import of `name` finds it there, in one of `folders`."""
    *above, stem = name.split(".")
    folder = place.parent
    for part in reversed(above):
        if folder.name != part:
            return False
        folder = folder.parent
    # A path may lead over links and `..`, as one to import from does.
    return place.name.partition(".")[0] == stem and os.path.realpath(folder) in folders


def _is_source(place: Path, python: Collection[str]) -> bool:
    """Whether somebody has written it; a folder may have left the search path once it is loaded."""
    return place.suffix != ".so" and os.path.realpath(place.parent) not in python


def _list_plugins(installed: Iterable[metadata.Distribution]) -> Iterator[str]:
    for distribution in installed:
        points: Iterable[metadata.EntryPoint] = ()
        with suppress(OSError, ValueError, TypeError):  # what others wrote into a list of them
            points = distribution.entry_points
        for point in points:
            if point.group.startswith(_GROUPS):
                yield _top(point.value.partition(":")[0].strip())


def list_code(place: Path, *, compiled: bool = True) -> list[Path]:
    """A module's own file, or all that can be imported in a package's folder; sorted.

    `compiled`: whether that is more than Python files. What Python itself compiles is none.

    A linked folder is as good as one in place, and each is read once. One of more than
    `_MOST_LINKED` entries is not gone through: it may be a disk of data.
    """
    if not place.is_dir():
        return [place]
    suffixes = tuple(all_suffixes()) if compiled else (".py",)
    found, seen = [], set()
    for folder, within, files in os.walk(place, followlinks=True):
        within[:] = sorted(
            name
            for name in within
            if name.isidentifier()  # others cannot be imported, as those of a Kubernetes volume
            and name != "__pycache__"
            and _is_worth_reading(os.path.join(folder, name))
        )
        if (real := os.path.realpath(folder)) in seen:
            within.clear()
            continue
        seen.add(real)
        paths = (Path(folder, name) for name in files if name.endswith(suffixes))
        found += [path for path in paths if os.path.isfile(path)]
    return sorted(found)


def _is_worth_reading(folder: str) -> bool:
    if not os.path.islink(folder):
        return True
    count = 0
    for _, within, files in os.walk(folder):
        count += len(within) + len(files)
        if count > _MOST_LINKED:
            return False
    return True


def digest_startup(search: Iterable[str], brought: Brought) -> dict[str, str]:
    """Digests of what Python runs of the `.pth` files in site-packages, by their names.

    Folders that such a file adds do not count: they say where code lies. What comes with vLLM or
    with what it requires does not either. Raises OSError for a file that cannot be read.
    """
    found = {}
    folders = sorted({folder for folder in map(Path, search) if folder.name in _SITES})
    paths = (one for folder in folders for one in sorted(folder.glob("*.pth")))
    for path in paths:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        run = [line for line in text.splitlines() if line.startswith(_RUN)]
        if run and not path.name.startswith(_ELSEWHERE) and not brought.has(path.name, str(path)):
            found[path.name] = hashlib.sha256("\n".join(run).encode()).hexdigest()
    return found


def digest_code(files: Mapping[Path, Iterable[Path]], read: Read = lambda _: None) -> str:
    """Of what lies at each place, by the `files` that `list_code` finds there; more than one
    place by content alone.

    `read` is called with how many bytes more have been read. Raises OSError for a file that cannot
    be read.
    """
    digests = sorted({_digest_place(place, found, read) for place, found in files.items()})
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _digest_place(place: Path, files: Iterable[Path], read: Read) -> str:
    """Of a module's file; of a package's folder, by its files and their places in it."""
    if not place.is_dir():
        return sha256(place, read)
    digest = hashlib.sha256()
    for path in files:
        name = os.fsencode(path.relative_to(place))
        digest.update(name + f"\0{sha256(path, read)}\n".encode())
    return digest.hexdigest()
