"""What a check found: its cases by class, and the JSON of `check --json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from specdeck.engine.divergence.arms import Arm, Name
from specdeck.engine.divergence.compare import CLASSES, Class, Divergence, Recheck
from specdeck.engine.divergence.floors import Excess, weigh_excess
from specdeck.engine.divergence.statistics import Rate, p_any, p_any_bounds
from specdeck.engine.divergence.structured import Violation
from specdeck.engine.divergence.totals import ArmTotals, Totals
from specdeck.engine.divergence.verdict import IDLE, CheckEvidence, Verdict, explain_unsound, judge
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.store.checks import Checks, Pair, unreadable
from specdeck.engine.text import format_count

_NO_ACCIDENT = ("invalid", "material", "stream_only", "unreproduced", "reference_differs")
_TIES = ("near_tie", "structural")
LISTED = 1000
"""The most cases that a report lists; the counts are of all."""


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt whose answers differ."""

    prompt: int
    prompt_hash: str
    divergence: Divergence
    streamed_by: Name | None = None
    """The arm whose streamed and non-streamed output differ; None: the arms differ."""
    pair: Pair = "cross"
    """Which answers were compared."""

    def as_json(self, near_tie: float) -> dict[str, Any]:
        """Plain values, in the contract's words first."""
        d = self.divergence
        return {
            "prompt": self.prompt,
            "index": d.index,
            "serving_token": d.serving_token,
            "reference_token": d.reference_token,
            "margin_serving": d.margin_serving,
            "margin_reference": d.margin_reference,
            "class": d.kind(near_tie),
            "streamed_by": self.streamed_by,
            "pair": self.pair,
            "prompt_hash": self.prompt_hash,
            "serving_top": [list(one) for one in d.serving_top],
            "reference_top": [list(one) for one in d.reference_top],
            "structure": [asdict(change) for change in d.structure],
            "recheck": None if d.recheck is None else _recheck(d.recheck, near_tie),
            "violation": None if d.violation is None else asdict(d.violation),
        }


@dataclass(slots=True)
class Classes:
    """How many cases of each class, and where they begin; of constant size but for `listed`."""

    near_tie: float
    counts: dict[Class, int]
    material_unconfirmed: int
    """Not looked at a third time."""
    material_doubtful: int
    """Those of them whose margins alone prove nothing."""
    indexes: list[int]
    listed: list[Case]

    @classmethod
    def of(cls, cases: Iterable[Case], near_tie: float) -> Classes:
        """Counts every case and keeps the first of them, those that matter before others."""
        found = cls(near_tie, dict.fromkeys(CLASSES, 0), 0, 0, [], [])
        ties: list[Case] = []
        for case in cases:
            kind = case.divergence.kind(near_tie)
            found.counts[kind] += 1
            if kind == "material" and case.divergence.recheck is None:
                found.material_unconfirmed += 1
                found.material_doubtful += not case.divergence.is_clear(near_tie)
            if len(found.indexes) < 10 * LISTED:
                found.indexes.append(case.divergence.index)
            keep = ties if kind == "near_tie" else found.listed
            if len(keep) < LISTED:
                keep.append(case)
        room = LISTED - len(found.listed)
        found.listed = sorted([*found.listed, *ties[:room]], key=lambda case: case.prompt)
        return found

    @property
    def wrong(self) -> int:
        """Prompts with an answer in which a sure token is surely wrong, whichever answer it is."""
        confirmed = self.counts["material"] - self.material_doubtful
        return confirmed + self.counts["reference_differs"]

    def add_streamed(self, cases: Iterable[Case]) -> None:
        """Adds those of one arm, whose streamed output is another or breaks the prompt's rules."""
        for case in cases:
            self.counts[case.divergence.kind(self.near_tie)] += 1
            if len(self.listed) < LISTED:
                self.listed.append(case)
        self.listed.sort(key=lambda case: case.prompt)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished check."""

    verdict: Verdict
    threshold: float
    totals: Totals
    classes: Classes
    arms: tuple[Arm, Arm]
    floor_classes: Classes
    excess: Excess | None = None
    """How much more often the arms differ than the floors explain; None of nothing."""
    refused: tuple[tuple[int, str], ...] = ()
    calls: int = 5
    """Calls per session, for the risk that one of them differs."""
    notices: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Every key always there, null when unknown."""
        return {
            **self._rates_as_json(),
            **self._kinds_as_json(),
            **self._arms_as_json(),
            "cases": [case.as_json(self.classes.near_tie) for case in self.classes.listed],
            "cases_left_out": sum(self.classes.counts.values()) - len(self.classes.listed),
            "refused": {
                "prompts": self.totals.refused,
                "first": [{"prompt": n, "reason": why} for n, why in self.refused],
            },
            "seconds": self.totals.seconds,
            "notices": list(self.notices),
        }

    def _rates_as_json(self) -> dict[str, Any]:
        """The verdict, and the rates and floors that it rests on."""
        totals, rate = self.totals, self.totals.cross
        return {
            "verdict": self.verdict.word,
            "reason": self.verdict.reason,
            "prompts": totals.prompts,
            "mismatches": totals.mismatches,
            "mismatch_rate": rate.rate,
            "ci95": list(rate.ci95) if rate.of else None,
            "bounds95": list(rate.bounds95) if rate.of else None,
            "exact_rate": None if rate.rate is None else 1 - rate.rate,
            "streamed": {
                "pairs": totals.streamed.of,
                "mismatches": totals.streamed.count,
                **totals.streamed.as_json(),
            },
            "max_mismatch": self.threshold,
            "prompts_wanted": self.verdict.prompts_wanted,
            "excess": None if self.excess is None else self.excess.as_json(self.threshold),
            "noise_floor": self._noise_as_json(),
        }

    def _noise_as_json(self) -> dict[str, Any]:
        """How often each arm differs from itself."""
        totals = self.totals
        floors = {"repeat": totals.floor, "batch": totals.batch_floor, "shape": totals.shape_floor}
        return {
            "pairs": totals.floor.of,
            **totals.floor.as_json(),
            "mismatches": totals.floor.count,
            **{
                name: {"pairs": floor.of, "mismatches": floor.count, **floor.as_json()}
                for name, floor in floors.items()
            },
            "material": self.floor_classes.counts["material"],
            "serving": {"pairs": totals.serving_floor.of, **totals.serving_floor.as_json()},
        }

    def _kinds_as_json(self) -> dict[str, Any]:
        """The kinds of differences, and what their margins are measured by."""
        totals, ruler = self.totals, self.totals.calibration
        return {
            "classes": dict(self.classes.counts),
            "tool_arguments": {
                "prompts": totals.tools.of,
                "mismatches": totals.tools.count,
                **totals.tools.as_json(),
            },
            "structured": {
                "prompts": totals.structured,
                "serving_invalid": totals.serving_invalid,
                "reference_invalid": totals.reference_invalid,
                "invalid": self.classes.counts["invalid"],
            },
            "near_tie": {
                "threshold": self.classes.near_tie,
                "resolution": ruler.resolution(),
                "noise": ruler.measured_noise(),
            },
            "per_1000_tokens": _per_1000_tokens(totals),
            "first_divergence": _places(self.classes.indexes),
        }

    def _arms_as_json(self) -> dict[str, Any]:
        """How much was asked of whom, and what that makes of a session's calls."""
        totals, rate = self.totals, self.totals.cross
        serving, reference = self.arms
        return {
            "asks": {
                "answers": totals.serving.requests + totals.reference.requests + totals.alone_pairs,
                "more": totals.more_asks,
                "looks": totals.looks,
            },
            "per_session": {
                "calls": self.calls,
                "p_any": None if rate.rate is None else p_any(rate.rate, self.calls),
                "ci95": list(p_any_bounds(rate, self.calls)) if rate.of else None,
            },
            "arms": {
                "serving": _arm(serving, totals.serving),
                "reference": _arm(reference, totals.reference),
            },
        }


def build_outcome(
    totals: Totals,
    arms: tuple[Arm, Arm],
    *,
    cases: Callable[[Pair], Iterable[Case]],
    refused: tuple[tuple[int, str], ...] = (),
    threshold: float,
    calls: int = 5,
    copies: int = 0,
) -> Outcome:
    """Weighs everything; `cases` are those of a comparison, by prompt.

    `copies` are lines of the prompts that were passed over.
    """
    totals.calibration.note_formats(*(_declared_format(arm) for arm in arms))
    near_tie = totals.calibration.near_tie()
    classes = _classify(cases, near_tie)
    # Only tokens that differ are noise; streaming has its notices.
    floor = Classes.of(
        (case for case in cases("reference") if not case.divergence.stream_only), near_tie
    )
    evidence = CheckEvidence(
        mismatches=totals.cross,
        excess=(excess := weigh_excess(totals.patterns)),
        material=classes.counts["material"],
        floor_material=floor.counts["material"],
        are_ties=not any(n for kind, n in classes.counts.items() if kind not in _TIES),
        unsound=floor.wrong,
        unconfirmed=classes.material_doubtful,
        reference_differs=classes.counts["reference_differs"],
        stream_only=totals.stream_only,
        retold=totals.retold,
        invalid=classes.counts["invalid"],
        broken=next((v.line() for v in map(_violation, classes.listed) if v), None),
        drafted=_count_drafted(arms[0], totals.serving),
        idle=None if arms[0].drafts_by_text else totals.serving.idle,
        empty=totals.empty,
        refused=totals.refused,
        compared=totals.compared.get("mismatches"),
        reference_drafted=totals.reference.has_drafts,
        is_pinned=totals.reference.shows_pin
        or (arms[1].grade == "hard" and totals.reference.counted),
        idle_by_word=Rate(totals.serving.idle_by_word, totals.serving.looked_answers),
        unheard=Rate(totals.serving.unheard, totals.serving.looked_answers),
        pins_served=Rate(totals.serving.pins_named, totals.serving.requests),
        drafts_lost=totals.serving.drafted is None and totals.serving.lost,
        turned_idle=_may_have_turned_idle(arms[0], totals.serving),
        mixed=next((a.name for a, one in _sums(arms, totals) if one.is_mixed), None),
    )
    return Outcome(
        judge(evidence, threshold), threshold, totals, classes, arms, floor, excess, refused, calls,
        (*_copy_notices(copies), *_notices(arms, totals, classes, floor)),
    )  # fmt: skip


def _may_have_turned_idle(serving: Arm, sums: ArmTotals) -> bool:
    """Whether answers may be of after the engine stopped to draft, as it says in the end it has."""
    if not sums.turned_idle or (Rate(sums.unshown, sums.requests).rate or 0.0) <= IDLE:
        return False
    return serving.drafts_by_text or not sums.tells_idleness


def count_classes(
    totals: Totals, arms: tuple[Arm, Arm], cases: Callable[[Pair], Iterable[Case]]
) -> dict[Class, int]:
    """How many cases of each class there are so far; `totals` stay as they are."""
    ruler = replace(totals.calibration)
    ruler.note_formats(*(_declared_format(arm) for arm in arms))
    return _classify(cases, ruler.near_tie()).counts


def read_cases(store: Checks, run: int, compared: Pair) -> Iterator[Case]:
    """The cases of a run in the store; raises UsageError for one that it cannot read."""
    for row in store.divergences(run, compared):
        try:
            found = Divergence.from_json(row.detail or {})
        except WrongType as error:
            raise unreadable(error, remedy="--fresh starts over") from error
        yield Case(row.prompt, row.prompt_hash, found)


def _classify(cases: Callable[[Pair], Iterable[Case]], near_tie: float) -> Classes:
    """The cases of both pairs of answers, and those of the serving arm alone."""
    classes = Classes.of(_weigh_both(cases, near_tie), near_tie)
    classes.add_streamed(
        replace(case, streamed_by="serving")
        for case in cases("serving")
        if case.divergence.streamed_alone or case.divergence.breaks_rule
    )
    return classes


def _weigh_both(cases: Callable[[Pair], Iterable[Case]], near_tie: float) -> Iterator[Case]:
    """The cases of the whole answers, and of the streamed ones those that are no accident.

    A defect that comes and goes may be in either of the two answers to a prompt.
    """
    known: set[int] = set()
    for case in cases("cross"):
        if case.divergence.kind(near_tie) in _NO_ACCIDENT:
            known.add(case.prompt)
        yield case
    for case in cases("streamed"):
        if case.prompt not in known and case.divergence.kind(near_tie) in _NO_ACCIDENT:
            yield replace(case, pair="streamed")


def _declared_format(arm: Arm) -> str | None:
    """The number format of a model's body, as its engine's config has it."""
    found = (arm.facts.details or {}).get("config.model.dtype")
    return found if isinstance(found, str) else None


def _per_1000_tokens(totals: Totals) -> dict[str, float | None]:
    """How often answers part in a thousand tokens, by what was compared."""
    counts = {
        "mismatches": totals.mismatches,
        "repeat": totals.reference_mismatches,
        "batch": totals.alone_mismatches,
        "shape": totals.flipped,
    }
    return {
        name: 1000 * count / tokens if (tokens := totals.compared.get(name)) else None
        for name, count in counts.items()
    }


def _count_drafted(serving: Arm, sums: ArmTotals) -> int | None:
    """Tokens drafted for its answers; 0 where these do not say, and nothing else drafts either."""
    if sums.drafted is not None:
        return sums.drafted
    return 0 if serving.is_idle or (sums.counted and not sums.speculates) else None


def _sums(arms: tuple[Arm, Arm], totals: Totals) -> Iterator[tuple[Arm, ArmTotals]]:
    return zip(arms, (totals.serving, totals.reference), strict=True)


def _violation(case: Case) -> Violation | None:
    return case.divergence.violation


def _copy_notices(copies: int) -> Iterable[str]:
    if copies:
        lines = format_count(copies, "prompt")
        yield f"{lines} left out as copies: a prompt is asked once, however often it is given"


def _notices(
    arms: tuple[Arm, Arm], totals: Totals, classes: Classes, floor: Classes
) -> Iterable[str]:
    serving, reference = arms
    if serving.model != reference.model:
        yield f"the arms are asked by different names: {serving.model} and {reference.model}"
    if reference.grade == "soft":
        yield "the reference is soft: the same engine without drafts, not another program"
    if reference.pin is None and reference.facts.method and (reference.facts.k or 0) > 0:
        yield f"the reference drafts too (k={reference.facts.k})"
    for arm, sums in _sums(arms, totals):
        if sums.replaced:
            yield f"the {arm.name} engine was replaced while it was checked"
        if len(sums.paths) > 1 and arm.pin is None:
            yield (
                f"the {arm.name} path changed while it was checked: {len(sums.paths)} fingerprints,"
                f" {sums.paths[0]} first; the verdict is of all of them together"
            )
    if totals.serving.drafted is None:
        yield "the engine does not say how many tokens it drafted: that it did is not proven"
    if (idle := totals.serving.idle).count:
        yield f"nothing was drafted for {idle.count} of {idle.of} serving answers"
    yield from streaming_notices(totals)
    if not totals.calibration.sound:
        yield "too few tokens to measure the resolution: bfloat16's is taken for near ties"
    if totals.refused:
        refused = format_count(totals.refused, "prompt")
        yield f"an arm refused {refused}, not counted in any figure"
    if lost := classes.counts["unreproduced"]:
        differences = format_count(lost, "material difference")
        yield f"{differences} did not reproduce: in some look the target found the token as good"
    if classes.material_unconfirmed:
        yield f"{classes.material_unconfirmed} material cases were not confirmed by a third request"
    if floor.wrong:
        yield explain_unsound(floor.wrong)
    if totals.serving_floor.count and not totals.floor.count:
        yield "the serving arm does not repeat itself, the reference does"


def streaming_notices(totals: Totals) -> Iterable[str]:
    """Lines for differences between streamed and non-streamed output that no draft has made."""
    for count, whose, cause in (
        (totals.streamed_in_both, "in both arms", "the server's parser, not speculation"),
        (totals.streamed_by_reference, "in the reference alone", "its server, not speculation"),
    ):
        if count:
            prompts = format_count(count, "prompt")
            yield f"streamed and non-streamed output differ for {prompts} {whose}: {cause}"


def _arm(arm: Arm, totals: ArmTotals) -> dict[str, Any]:
    return {
        "url": arm.url,
        "grade": arm.grade,
        "model": arm.model,
        "k": arm.k,
        "mode": arm.facts.mode,
        "fingerprint": (arm.pin is not None and totals.pinned) or arm.facts.fingerprint,
        "system_fingerprint": arm.facts.system_fingerprint,
        "vllm": arm.facts.vllm,
        "tokens_per_second": totals.tokens_per_second,
        "tokens": totals.tokens,
        "drafted": totals.drafted,
    }


def _recheck(seen: Recheck, near_tie: float) -> dict[str, Any]:
    return {**asdict(seen), "confirmed": None if seen.gap is None else seen.gap > near_tie}


def _places(indexes: list[int]) -> dict[str, Any]:
    if not indexes:
        return {"min": None, "median": None, "max": None}
    return {"min": min(indexes), "median": median(indexes), "max": max(indexes)}
