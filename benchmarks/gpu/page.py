"""The page that the program writes: a section for each part, replaced one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.gpu.machine import ON_GPU
from benchmarks.gpu.parts import PARTS, Part
from benchmarks.gpu.report import Report

from specdeck.engine.files import replace_file
from specdeck.engine.fingerprint.secrecy import redact

PAGE = Path(__file__).parents[1] / "GPU.md"

Status = Literal["ran", "failed", "cut", "absent", "skipped"]

HEAD = """# On a GPU

Written by `python -m benchmarks.gpu`, as found: what failed stands here with the end of the
engine's log. {state}

```
sh benchmarks/gpu/run.sh                          # everything, 25 minutes, writes this page
sh benchmarks/gpu/run.sh --parts 1,2 --minutes 9  # some parts; the others keep their sections
```

`run.sh` needs a Python that can import vLLM's CUDA build and specdeck's dependencies; specdeck
itself may be a mere checkout.

The models are the pair in `sample_configs/models` (Llama, 4 layers of width 192, and a draft of 1
layer), the target made deeper with blocks that pass their input through. Steps are launches of
small kernels: the times below say how k, graphs and pins compare, and not what a large model takes.

A *check* holds on any machine or is a defect; everything else is a measurement.
"""
NEVER = "**Never run on a GPU yet.**"
SOME = "Sections name the machine that they were run on."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part ended, and what it has to show."""

    part: Part
    status: Status
    why: str = ""
    """Of a part that did not come to its end, or did not begin."""
    about: str = ""
    """When and on what it ran, and for how long."""
    report: Report = field(default_factory=Report)
    small: bool = False
    log: Sequence[str] = ()
    """The last lines of what an engine or the part wrote, of one that failed."""

    @property
    def is_good(self) -> bool:
        """Whether nothing went wrong; of a part that cannot run here, nothing did."""
        return self.status in ("ran", "absent") and not self.report.breaches

    def describe_status(self) -> str:
        """The first words of the section: only a part that ran to its end has run."""
        form = " in its small form" if self.small else ""
        breaches, checks = self.report.breaches, len(self.report.checks)
        found = f"; {breaches} of {checks} checks do not hold" if breaches else ""
        words = {
            "ran": f"ran{form}{found}",
            "failed": f"FAILED{form}: {self.why}",
            "cut": f"CUT SHORT{form}: {self.why}; what it had found until then",
            "absent": f"not on this machine: {self.why}",
            "skipped": f"not run: {self.why}",
        }
        return redact(words[self.status])

    def as_markdown(self) -> str:
        """The section, without its heading."""
        parts = [f"**{self.describe_status()}**", self.about, self.report.as_markdown()]
        if self.log:
            lines = "\n".join(line.replace("```", "'''")[:300] for line in self.log)
            parts.append(f"```\n{redact(lines)}\n```")
        return "\n\n".join(part for part in parts if part)


class Page:
    """The page as it stands on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text() if path.exists() else ""
        found = re.split(r"^## (\d+)\. .*\n", text, flags=re.MULTILINE)[1:]
        self._sections = {
            int(number): body.strip() for number, body in zip(found[::2], found[1::2], strict=True)
        }

    def put(self, outcome: Outcome) -> None:
        """Replaces a part's section, and writes the page; what was not run replaces nothing."""
        number = outcome.part.number
        if outcome.status != "skipped" or number not in self._sections:
            self._sections[number] = outcome.as_markdown()
        self.write()

    def write(self) -> None:
        """Writes all sections in their order; a part that nobody has run says so."""
        replace_file(self._path, self.as_markdown())

    def as_markdown(self) -> str:
        """The whole page."""
        on_gpu = any(ON_GPU in body for body in self._sections.values())
        blocks = [HEAD.format(state=SOME if on_gpu else NEVER).strip()]
        for part in PARTS:
            body = self._sections.get(part.number, f"**not run yet**\n\n{part.question}")
            blocks.append(f"## {part.number}. {part.title}\n\n{body}")
        return "\n\n".join(blocks) + "\n"
