"""Reading vLLM's source as text: re-exports, bases, and what a function goes by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks import contract
from benchmarks.vllm_source import Source

from specdeck.engine.plugin.contract import Row

FILES = {
    "vllm/__init__.py": "from .parts import Thing as Part\n",
    "vllm/parts/__init__.py": "try:\n    from .new import Thing\nexcept ImportError: ...\n",
    "vllm/parts/new.py": (
        "from vllm.parts.base import Base\n"
        "GROUP = 'vllm.group'\n"
        "class Thing(Base):\n"
        "    size: int\n"
        "    def __init__(self):\n        self.lookup = None\n"
        "    async def call(self, method, *args, patient=True):\n"
        "        'Calls.'\n        return await self.send(method, urgent=patient)  # at once\n"
    ),
    "vllm/parts/base.py": "class Base:\n    def send(self, method): ...\n",
}
ROW = Row("vllm", "Part", "core", ("plugin.core_engine",), "live_k", "nothing works")


def examine(row: Row, files: dict[str, str] | None = None) -> contract.Finding:
    """What a small package has of `row`."""
    return contract.examine(Source((files or FILES).get), [row])[0]


@pytest.mark.parametrize(
    ("row", "lacks"),
    [
        (replace(ROW, members=("size", "lookup", "call", "send")), ()),
        (replace(ROW, members=("size", "height")), ("Part.height",)),
        (replace(ROW, name="Part.send", parameters=("method",)), ()),
        (replace(ROW, name="Part.call", parameters=("method", "args", "patient")), ()),
        (replace(ROW, name="Part.call", parameters=("timeout",)), ("Part.call(timeout)",)),
        (replace(ROW, name="Part.call", passes=(("send", "urgent"), ("send", ""))), ()),
        (
            replace(ROW, name="Part.call", passes=(("send", "slow"),)),
            ("send(slow) in Part.call",),
        ),
        (replace(ROW, name="Part.call", reads=("lookup",)), ("lookup in Part.call",)),
        (replace(ROW, module="vllm.parts.new", name="GROUP", value="vllm.group"), ()),
        (
            replace(ROW, module="vllm.parts.new", name="GROUP", value="vllm.other"),
            ("GROUP = vllm.other",),
        ),
        (replace(ROW, module="vllm.parts.old", elsewhere=("vllm",)), ()),
        (replace(ROW, module="vllm.parts.old"), ("Part",)),
        (replace(ROW, name="Part.cancel"), ("Part.cancel",)),
    ],
    ids=lambda value: str(getattr(value, "key", "")),
)
def test_a_row_is_found_where_it_is_and_missed_where_it_is_not(
    row: Row, lacks: tuple[str, ...]
) -> None:
    finding = examine(row)
    assert finding.lacks == lacks
    assert finding.is_red == bool(lacks)


def test_comments_and_docstrings_do_not_change_a_meaning_and_code_does() -> None:
    row = replace(ROW, name="Part.call", meaning=True)
    before = examine(row).meaning

    def meaning(old: str, new: str) -> str | None:
        text = FILES["vllm/parts/new.py"].replace(old, new)
        return examine(row, FILES | {"vllm/parts/new.py": text}).meaning

    assert meaning("  # at once", "") == before
    assert meaning("'Calls.'", "'Calls it.'") == before
    assert meaning("urgent=patient", "urgent=True") != before


def test_an_optional_row_is_missed_without_turning_red() -> None:
    finding = examine(replace(ROW, name="Part.cancel", optional=True))
    assert not finding.present
    assert not finding.is_red
