"""What a part of the program has found, kept on disk as it is found: a cut loses the rest only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.engines import table

from specdeck.engine.files import replace_file


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold on any machine, and whether it did here."""

    sentence: str
    holds: bool
    found: str = ""
    """What was found instead, where it did not."""

    def as_markdown(self) -> str:
        """One line of the page.

        >>> Check("no token below 0", False, "2 of 4096").as_markdown()
        '- **does not hold**: no token below 0 (2 of 4096)'
        """
        found = f" ({self.found})" if self.found else ""
        return f"- {'holds' if self.holds else '**does not hold**'}: {self.sentence}{found}"


@dataclass(slots=True)
class Report:
    """The blocks and checks of one part; each addition is written out at once."""

    path: Path | None = None
    """None keeps it in memory."""
    blocks: dict[str, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    finished: bool = False
    """Whether the part came to its end."""

    def put(self, key: str, markdown: str) -> None:
        """Adds a block of the page, or replaces the one put under `key` before."""
        self.blocks[key] = markdown
        self._save()

    def put_table(
        self, key: str, head: Sequence[str], rows: Sequence[Sequence[str]], about: str = ""
    ) -> None:
        """Puts a table with a sentence above it."""
        body = table(list(head), [list(row) for row in rows])
        self.put(key, f"{about}\n\n{body}" if about else body)

    def check(self, sentence: str, holds: bool, found: str = "") -> None:
        """Adds something that must hold."""
        self.checks.append(Check(sentence, holds, found))
        self._save()

    def finish(self) -> None:
        """Says that nothing is missing."""
        self.finished = True
        self._save()

    @property
    def breaches(self) -> int:
        """Checks that do not hold."""
        return sum(not check.holds for check in self.checks)

    def as_markdown(self) -> str:
        """The body of the part's section."""
        checks = "\n".join(check.as_markdown() for check in self.checks)
        return "\n\n".join([*self.blocks.values(), *([checks] if checks else [])])

    def _save(self) -> None:
        if self.path is None:
            return
        checks = [[check.sentence, check.holds, check.found] for check in self.checks]
        found = {"blocks": self.blocks, "checks": checks, "finished": self.finished}
        replace_file(self.path, json.dumps(found))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The report that another process wrote; an empty one if it wrote none."""
        if not path.exists():
            return cls(path)
        found: dict[str, Any] = json.loads(path.read_text())
        checks = [Check(*check) for check in found["checks"]]
        return cls(path, found["blocks"], checks, found["finished"])
