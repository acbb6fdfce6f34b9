"""Documents that were honest: their values replaced, moved, doubled and taken out, their bytes cut.

@given(mutated_json({"k": 3}))
def test_nonsense_is_refused(body: bytes) -> None: ...
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.hostile.lies import ESCAPES

Place = tuple[dict[str, Any] | list[Any], Any]
"""What holds a value, and the key or the index under which."""

_VERBATIM: dict[str, bytes] = {
    "<deep>": b"[" * 5000 + b"]" * 5000,
    "<nested>": b'{"a":' * 70 + b"1" + b"}" * 70,
    "<digits>": b"9" * 5000,
    "<huge>": b"1e999",
    "<tiny>": b"1e-999",
    "<twice>": b'{"k": 1, "k": {}}',
    "<no text>": b'"\xff\xfe"',
    "<null byte>": b'"\x00"',
}
"""Spellings that no encoder writes, by what stands for them."""

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 255, 257, 2**31, 2**53 + 1, 10**19, 10**40, 1e18,
    1e308, -1e308, float("nan"), float("inf"), float("-inf"), "", " ", "0", "-1", "nan", "1e999",
    "٣", "closed", "half-open", "speculate", "\ud800", "a\udfffb", "\x00", "\n", ESCAPES,
    "x" * 3000, "../../etc/passwd", "$(id)", "<img src=x onerror=alert(1)>", "%s{0}", "[bold]",
    [], {}, [[]], [None], [0] * 300, {"": None}, {"k": {}}, {ESCAPES: ESCAPES}, {"\ud800": 1},
    *_VERBATIM,
)  # fmt: skip
"""Values for which nothing was made."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One change of a document, at the place with this number, counted around."""

    act: Literal["replace", "delete", "double", "move", "rename", "add"]
    at: int
    value: Any
    other: int

    def apply(self, document: Any) -> Any:
        """The document after it, which may be the same one."""
        found = list(_places(document))
        if not found:
            return deepcopy(self.value) if self.act == "replace" else document
        at, key = found[self.at % len(found)]
        other, name = found[self.other % len(found)]
        if self.act == "replace":
            at[key] = deepcopy(self.value)
        elif self.act == "delete":
            del at[key]
        elif self.act == "double":
            _put_beside(at, key, deepcopy(at[key]))
        elif self.act == "move":
            at[key] = deepcopy(other[name])
        elif self.act == "rename" and isinstance(at, dict):
            at[str(self.value)] = at.pop(key)
        else:
            _put_beside(at, self.value, deepcopy(other[name]))
        return document


def _places(value: Any) -> list[Place]:
    found: list[Place] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else range(len(one))
            found += [(one, key) for key in keys]
            left += [one[key] for key in keys]
    return found


def _put_beside(at: dict[str, Any] | list[Any], key: Any, value: Any) -> None:
    if isinstance(at, dict):
        at[f"{key}2"] = value
    else:
        at.insert(key if isinstance(key, int) and abs(key) < 2**31 else 0, value)


@dataclass(frozen=True, slots=True)
class Cut:
    """One change of bytes, `at` and `length` in parts of 10,000."""

    act: Literal["end", "flip", "drop", "double", "put"]
    at: int
    length: int
    bit: int
    piece: bytes

    def apply(self, data: bytes) -> bytes:
        """The bytes after it."""
        start = len(data) * self.at // 10_000
        end = start + max(1, (len(data) - start) * self.length // 10_000)
        if self.act == "end":
            return data[:start]
        if self.act == "flip":
            return (
                data[:start]
                + bytes(b ^ (1 << self.bit) for b in data[start : start + 1])
                + (data[start + 1 :])
            )
        if self.act == "drop":
            return data[:start] + data[end:]
        if self.act == "double":
            return data[:end] + data[start:]
        return data[:start] + self.piece + data[start:]


_PIECES = (
    b"\x00", b"\xff", b"\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\n\n", b"\x1b]0;t\x07",
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"#", b"&a *a", b"!!python/object:os.system ", b"\\u",
    b"NaN", b"-", b"%", b"9" * 400, b"x" * 3000, "٣é東".encode(), b"\xc2\x85", b"\xe2\x80\xae",
)  # fmt: skip

_turns = st.builds(
    Turn,
    act=st.sampled_from(("replace", "delete", "double", "move", "rename", "add")),
    at=st.integers(0, 9999),
    value=st.sampled_from(STRANGE),
    other=st.integers(0, 9999),
)
turns = st.lists(_turns, min_size=1, max_size=4)
"""Changes of any document."""
_cuts = st.builds(
    Cut,
    act=st.sampled_from(("end", "flip", "drop", "double", "put")),
    at=st.integers(0, 9999),
    length=st.integers(0, 9999),
    bit=st.integers(0, 7),
    piece=st.sampled_from(_PIECES),
)
_FIGURES = (0, -1, 1, -5, 5, -5000, 2**53, -(2**53), 1e18, -1e18, 5e-324, -0.2, 0.2, 1e-9)
"""Numbers that a place may take for one of its own: they cancel each other out, overflow, or are
next to nothing."""


def mutated_figures(document: Any) -> SearchStrategy[Any]:
    """The document with up to a dozen of its numbers replaced by others."""

    def refigure(drawn: list[tuple[int, float]]) -> Any:
        found = deepcopy(document)
        numbers = [(at, key) for at, key in _places(found) if type(at[key]) in (int, float)]
        for number, figure in drawn:
            at, key = numbers[number % len(numbers)]
            at[key] = figure
        return found

    pairs = st.tuples(st.integers(0, 9999), st.sampled_from(_FIGURES))
    return st.lists(pairs, min_size=1, max_size=12).map(refigure)


def mutated_values(document: Any) -> SearchStrategy[Any]:
    """The document after one to four changes of its values."""

    return turns.map(lambda drawn: apply_turns(document, drawn))


def apply_turns(document: Any, drawn: Sequence[Turn]) -> Any:
    """The document after all of them; it is left as it was."""
    found = deepcopy(document)
    for one in drawn:
        found = one.apply(found)
    return found


def mutated_bytes(data: bytes) -> SearchStrategy[bytes]:
    """The bytes after one to three changes."""

    def cut(cuts: list[Cut]) -> bytes:
        found = data
        for one in cuts:
            found = one.apply(found)
        return found

    return st.lists(_cuts, min_size=1, max_size=3).map(cut)


def mutated_json(document: Any) -> SearchStrategy[bytes]:
    """The document as JSON: its values changed, or else its bytes."""
    return st.one_of(
        mutated_values(document).map(spell), mutated_bytes(json.dumps(document).encode())
    )


def spell(value: Any) -> bytes:
    """As JSON, with what no encoder writes."""
    data = json.dumps(value).encode()
    for name, verbatim in _VERBATIM.items():
        data = data.replace(json.dumps(name).encode(), verbatim)
    return data
