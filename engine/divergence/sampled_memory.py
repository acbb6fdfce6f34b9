"""A check of distributions among its earlier ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from specdeck.engine.divergence.arms import moved
from specdeck.engine.divergence.canary import alike, details
from specdeck.engine.fingerprint.digest import canonical
from specdeck.engine.store.checks import SAMPLED, Checks, Run

if TYPE_CHECKING:
    from specdeck.engine.divergence.lab import Lab
    from specdeck.engine.divergence.prompts import PromptSet

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SampledHistory:
    """Earlier runs with the same prompts, sampling and kind of reference."""

    runs: int
    failed: int
    inconclusive: int
    changed: tuple[str, ...]
    """Facts of the serving engine that were others in the run before."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "changed": list(self.changed)}

    def line(self) -> str:
        """One line for the operator.

        >>> SampledHistory(5, 1, 0, ("vllm",)).line()
        'of 5 earlier runs 1 failed; the fingerprint changed in: vllm'
        """
        if not self.runs:
            return "the first run"
        runs = "1 earlier run" if self.runs == 1 else f"{self.runs} earlier runs"
        said = f"of {runs} {self.failed or 'none'} failed"
        if self.inconclusive:
            said += f", {self.inconclusive} inconclusive"
        changed = f"; the fingerprint changed in: {', '.join(self.changed)}" if self.changed else ""
        return said + changed


def kept(lab: Lab, data: Data, prompts: PromptSet, store: Checks, t: float) -> SampledHistory:
    """Writes a finished run down, at Unix time `t`; how it stands to those before it."""
    serving, reference = lab.arms
    settings = {name: data[name] for name in ("samples", "tokens", "temperature")}
    facts = {"kind": SAMPLED, "serving": serving.as_json(), "reference": reference.as_json(),
             "settings": settings, "prompts": prompts.digest}  # fmt: skip
    key = hashlib.sha256(canonical({**facts, "t": t})).hexdigest()[:32]
    run = store.begin(key, t, serving.url, facts)
    store.finish(run.id, t, dict(data))
    return history(store.history(serving.url, kind=SAMPLED))


def history(runs: Sequence[Run]) -> SampledHistory:
    """Compares the first of `runs`, which come the newest first, with the others like it."""
    like = alike(runs)
    if not like:
        return SampledHistory(0, 0, 0, ())
    words = [run.summary["verdict"] for run in like if run.summary]
    return SampledHistory(
        len(like),
        words.count("fail"),
        words.count("inconclusive"),
        moved(details(like[0]), details(runs[0])),
    )
