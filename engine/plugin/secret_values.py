"""The credentials among an engine's arguments, looked for in a text as themselves.

What shortens a text cuts off the name that tells a credential: pydantic quotes what it refuses
with `...` in place of its middle.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from specdeck.engine.files import read_file
from specdeck.engine.fingerprint.secrecy import MASK
from specdeck.engine.protocol.messages import MASK_VARIABLE

_BEGIN = "# secrets: "
_LARGEST = 16_000_000
"""Bytes of the file of arguments; a whole model's overrides are some kilobytes."""

_SHORTEST = 4
"""Characters from which on a value is looked for; a shorter one is part of anything."""
_SHORTEST_NUMBER = 6
"""The same for digits alone: ports, sizes and times are shorter."""
_UNMISTAKABLE = 8
"""Characters from which on nothing else is spelt like a value; a shorter one has to stand alone."""
_SHORTEST_END = 4
"""Characters of a value that are looked for beside what stands for the rest of it."""
_WORDS = frozenset((
    "auto", "basic", "bearer", "default", "disabled", "enabled", "false", "none", "null",
    "optional", "password", "required", "secret", "token", "true", "user",
))  # fmt: skip
"""What stands in place of a credential, and in any log."""

_CUT = re.compile(r"\.\.\.|…")
_INPUT = re.compile(r"(?<=input_value=)[^\n]*?(?=, input_type=|\]?$)", re.MULTILINE)
"""What pydantic refuses; shortened, it may have less of a credential than tells it."""


def format_values(values: Iterable[str]) -> str:
    """The line that `read_values` finds in a file; a comment in YAML.

    >>> format_values(["pw", "pw"])
    '# secrets: ["pw"]'
    """
    # YAML takes no DEL as it is, which JSON does not escape.
    return _BEGIN + json.dumps(list(dict.fromkeys(values))).replace("\x7f", r"\u007f")


def read_values(file: Path) -> tuple[str, ...]:
    """The values in the first line of `file`; none where it is gone, or is no such file."""
    try:
        line = read_file(file, most=_LARGEST).partition(b"\n")[0].decode()
        values = json.loads(line.removeprefix(_BEGIN)) if line.startswith(_BEGIN) else []
    except (OSError, ValueError):
        return ()
    return tuple(value for value in values if isinstance(value, str))


def delete_read(environment: Mapping[str, str] = os.environ) -> None:
    """Deletes the file of arguments of an engine that is ready, where it has one.

    Every process has read it. Whoever follows the start does so as well, and may have been killed.
    """
    if not (named := environment.get(MASK_VARIABLE)):
        return
    file = Path(named)
    with suppress(OSError, ValueError):
        if read_file(file, most=_LARGEST, own=True).startswith(_BEGIN.encode()):
            file.unlink(missing_ok=True)


def make_mask(values: Iterable[str]) -> Callable[[str], str]:
    """What takes these values, and ends of them where a text was cut, out of a text.

    A text without any costs a search for each.

    >>> mask = make_mask(["correct-horse", "true"])
    >>> mask("pw is correct-horse: true"), mask("{'a': 'b...sword': 'correct-horse'}")
    ('pw is ***: true', "{'a': 'b...sword': '***'}")
    >>> mask("'correct-h...'"), mask("'...ct-horse'"), mask("loading...")
    ("'***...'", "'...***'", 'loading...')
    """
    spellings = {form for value in values for form in _spell(value) if _is_telling(form)}
    forms = sorted(spellings, key=len, reverse=True)
    alone = {
        form: re.compile(rf"(?<![\w-]){re.escape(form)}(?![\w-])")
        for form in forms
        if len(form) < _UNMISTAKABLE
    }

    def mask(text: str) -> str:
        for form in forms:
            if form in text:
                short = alone.get(form)
                text = text.replace(form, MASK) if short is None else short.sub(MASK, text)
        if "..." in text or "…" in text:
            text = _INPUT.sub(lambda said: MASK if _CUT.search(said[0]) else said[0], text)
            text = _mask_ends(text, forms)
        return text

    return mask


def mask_within(value: Any, mask: Callable[[str], str]) -> Any:
    """Values as JSON has them, with every text in them masked.

    >>> mask_within({"a": ["correct-horse", 5]}, make_mask(["correct-horse"]))
    {'a': ['***', 5]}
    """
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {mask(name): mask_within(held, mask) for name, held in value.items()}
    return [mask_within(item, mask) for item in value] if isinstance(value, list) else value


def list_values(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Those of this engine's arguments.

    A process that asks before the engine is ready knows them from then on.
    """
    named = environment.get(MASK_VARIABLE)
    return _read_once(Path(named)) if named else ()


@cache
def _read_once(file: Path) -> tuple[str, ...]:
    return read_values(file)


def measure_longest(values: Iterable[str]) -> int:
    """Characters of the longest way in which one of `values` may stand in a text.

    >>> measure_longest(["pw", "a/b"])
    5
    """
    return max((len(form) for value in values for form in _spell(value)), default=0)


def _spell(value: str) -> Iterator[str]:
    """A value as Python, JSON and a URL have it, and each line of it."""
    for part in (value, *value.splitlines()):
        yield from (part, repr(part)[1:-1], json.dumps(part)[1:-1], quote(part, safe=""))


def _is_telling(form: str) -> bool:
    if form.isdecimal():
        return len(form) >= _SHORTEST_NUMBER
    return len(form.strip()) >= _SHORTEST and form.lower() not in _WORDS


def _mask_ends(text: str, forms: list[str]) -> str:
    """`text` without what a cut has left of a value before or behind it."""
    parts, at = [], 0
    for cut in _CUT.finditer(text):
        if cut.start() < at:
            continue
        head = max((_count_head(text, cut.start(), form) for form in forms), default=0)
        tail = max((_count_tail(text, cut.end(), form) for form in forms), default=0)
        if head and cut.start() - head >= at:
            parts += [text[at : cut.start() - head], MASK]
            at = cut.start()
        if tail:
            parts += [text[at : cut.end()], MASK]
            at = cut.end() + tail
    return "".join((*parts, text[at:]))


def _count_head(text: str, end: int, form: str) -> int:
    """Characters before `end` that are the beginning of a value; 0 where they are too few."""
    start = max(0, end - len(form))
    while (start := text.find(form[:_SHORTEST_END], start, end)) >= 0:
        if form.startswith(text[start:end]):
            return end - start
        start += 1
    return 0


def _count_tail(text: str, start: int, form: str) -> int:
    """Characters from `start` that are the end of a value; 0 where they are too few."""
    begun, at = text[start : start + _SHORTEST_END], 0
    if len(begun) < _SHORTEST_END:
        return 0
    while (at := form.find(begun, at)) >= 0:
        if text.startswith(form[at:], start):
            return len(form) - at
        at += 1
    return 0
