"""A check among its earlier ones: what changed, and gauges for the rest of the house."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdeck.engine.divergence.arms import moved
from specdeck.engine.divergence.statistics import Rate, above
from specdeck.engine.store.checks import Run

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """Earlier runs with the same prompts, settings and kind of reference."""

    runs: int
    rate: float | None
    """Of all of them together; None without any."""
    p: float | None
    """The chance of so high a rate as now, were it what it was; None without any."""
    changed: tuple[str, ...]
    """Facts of the serving engine that were others in the run before."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "changed": list(self.changed)}

    def line(self, rate: float | None) -> str:
        """One line for the operator.

        >>> History(30, 0.012, 0.03, ("vllm",)).line(0.021)
        '2.10%, was 1.20% for 30 runs; the fingerprint changed in: vllm'
        """
        now = "–" if rate is None else f"{rate:.2%}"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        was = "the first run" if self.rate is None else f"was {self.rate:.2%} for {runs}"
        changed = f"; the fingerprint changed in: {', '.join(self.changed)}" if self.changed else ""
        return f"{now}, {was}{changed}"


def history(runs: Sequence[Run]) -> History:
    """Compares the first of `runs`, which come the newest first, with the others like it."""
    now, like = runs[0], alike(runs)
    if not like:
        return History(0, None, None, ())
    past = Rate(
        sum(int(run.summary["mismatches"]) for run in like if run.summary),
        sum(int(run.summary["prompts"]) for run in like if run.summary),
    )
    summary = now.summary or {"mismatches": 0, "prompts": 0}
    present = Rate(int(summary["mismatches"]), int(summary["prompts"]))
    changed = moved(details(like[0]), details(now))
    return History(len(like), past.rate, above(present, past), changed)


def alike(runs: Sequence[Run]) -> list[Run]:
    """The 30 latest before the first of `runs` with its prompts, settings and kind of reference.

    And with its models: a run that has not kept them may be of any.
    """
    now, *earlier = runs
    return [run for run in earlier if _same_kind(run, now) and run.summary][:30]


def _same_kind(run: Run, other: Run) -> bool:
    if _kind(run) != _kind(other):
        return False
    models = zip(_models(run), _models(other), strict=True)
    return all(one == two or None in (one, two) for one, two in models)


def _kind(run: Run) -> tuple[Any, ...]:
    reference = run.facts.get("reference", {})
    return run.facts.get("prompts"), run.facts.get("settings"), reference.get("grade")


def _models(run: Run) -> tuple[str | None, ...]:
    """The names that both arms were asked by; None where a run has not kept them."""
    arms = (run.facts.get(name, {}).get("facts") or {} for name in ("serving", "reference"))
    return tuple(facts.get("model") for facts in arms)


def details(run: Run) -> dict[str, Any]:
    """The facts of a run's serving engine, flat."""
    facts = run.facts.get("serving", {}).get("facts", {})
    named = {name: facts.get(name) for name in ("vllm", "method", "k", "k_max", "mode")}
    return {**named, **(facts.get("details") or {})}
