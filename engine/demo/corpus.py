"""The training text: the source of Python's standard library, and boilerplate from a generator."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

from specdeck.engine.demo import boilerplate

# Tests, tables, prose and what a distribution adds: unlike the code one writes.
LEFT_OUT = (
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test", "lib2to3"),
    *("turtledemo", "pydoc_data", "encodings", "ensurepip", "__pycache__"),
)
# Training counts its boilerplate up from 0; a load profile starts here, at text it never saw.
FIRST_UNSEEN_SEED = 1_000_000


def sources(library: Path | None = None) -> list[Path]:
    """The standard library's modules in a fixed order, without tests and tables."""
    root = library or Path(sysconfig.get_path("stdlib"))
    found = (path for path in root.rglob("*.py") if path.is_file())
    return sorted(p for p in found if not set(LEFT_OUT) & set(p.relative_to(root).parts))


def modules(paths: list[Path]) -> Iterator[str]:
    """The text of every module that can be read as UTF-8."""
    for path in paths:
        try:
            yield path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue


def idioms(characters: int, first_seed: int = 0) -> Iterator[str]:
    """Boilerplate of every kind in turn, at least `characters` of it.

    >>> sum(map(len, idioms(10_000))) >= 10_000
    True
    """
    kinds = boilerplate.CODE + boilerplate.TALK
    for seed in count(first_seed):
        if characters <= 0:
            return
        text = boilerplate.written(kinds[seed % len(kinds)], seed)
        characters -= len(text)
        yield text


def documents(seed: int, *, predictable: float) -> list[str]:
    """All documents in an order that `seed` decides.

    `predictable` is the share of boilerplate, counted in characters, below 1.
    """
    library = list(modules(sources()))
    wanted = int(sum(map(len, library)) * predictable / (1 - predictable))
    everything = library + list(idioms(wanted))
    Random(seed).shuffle(everything)
    return everything
