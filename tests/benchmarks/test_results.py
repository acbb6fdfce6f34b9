"""RESULTS.md: one section is made anew, and nothing else moves or goes."""

from __future__ import annotations

import re

import pytest
from benchmarks.run import BENCHMARKS, RESULTS, put_section

TEXT = RESULTS.read_text()


def split(text: str) -> list[str]:
    return [part.rstrip() for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_section_is_replaced_in_its_place(name: str) -> None:
    made = f"## {BENCHMARKS[name]}\n\nanew\n"
    text = TEXT if f"## {BENCHMARKS[name]}\n" in TEXT else put_section(TEXT, name, made)
    changed = put_section(text, name, made)
    assert put_section(changed, name, made) == changed
    before, after = (split(each) for each in (text, changed))
    assert len(before) == len(after)
    differ = [new for old, new in zip(before, after, strict=True) if old != new]
    assert differ in ([], [made.rstrip()])
    assert made.rstrip() in after


def test_a_new_section_leaves_the_others() -> None:
    text = "# Results\n\n## By hand\n\nx\n"
    assert put_section(text, "soak", "## Soak\n") == "# Results\n\n## By hand\n\nx\n\n## Soak\n"
