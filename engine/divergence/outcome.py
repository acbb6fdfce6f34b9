"""What a check found: sums that a run goes on from, its cases, and the JSON of `check --json`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import median
from typing import Any

from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.arms import Arm, Name, has_drafted
from specdeck.engine.divergence.calibration import Calibration
from specdeck.engine.divergence.compare import (
    CLASSES,
    CLEAR,
    Class,
    Divergence,
    PromptAnswers,
    Recheck,
    common_length,
)
from specdeck.engine.divergence.floors import Excess, check_pattern, weigh_excess
from specdeck.engine.divergence.statistics import Rate, p_any, p_any_bounds
from specdeck.engine.divergence.structured import Validity, Violation
from specdeck.engine.divergence.verdict import CheckEvidence, Verdict, explain_unsound, judge
from specdeck.engine.fingerprint.name import is_partial, own_part, pinned_k
from specdeck.engine.protocol.codec import Count, WrongType, read_record
from specdeck.engine.store.checks import Checks, Pair, unreadable
from specdeck.engine.text import format_count

_MOST_NAMES = 20
"""Of one arm: under a policy every k has its own."""
_DUE = 4
"""Tokens: a longer answer gives a drafter more than one occasion."""
_TELLING = 0.9
"""The share of answers that must be so long for idleness to be told by them alone."""
_NO_ACCIDENT = ("invalid", "material", "unreproduced", "reference_differs")
LISTED = 1000
"""The most cases that a report lists; the counts are of all."""


@dataclass(slots=True)
class ArmTotals:
    """What one arm answered."""

    requests: Count = 0
    tokens: Count = 0
    seconds: float = 0.0
    """Of its requests, added up: more than the clock shows when several run at once."""
    drafted: Count | None = None
    """None where the engine does not say."""
    names: list[str] = field(default_factory=list)
    """The fingerprints that its answers carried, in the order in which they were met."""
    pinned: str | None = None
    """The fingerprint of answers to pinned requests, with their k; None where none carried it."""
    pins_shown: Count = 0
    """Answers that tell what was drafted for them, or name a pin to k = 0."""
    pins_hidden: Count = 0
    """Those of more than a token that do neither."""
    pins_named: Count = 0
    """Those that name a pin to k = 0."""
    due: Count = 0
    """Answers long enough for drafts, of which the engine says how many there were."""
    undrafted: Count = 0
    """Those of them for which nothing was drafted."""
    replaced: bool = False
    """Whether another engine answered in the end than in the beginning: see `is_replaced`."""
    speculates: bool = False
    """Whether its engine drafted for anybody while it was asked, by its counters or its word."""
    counted: bool = False
    """Whether these tell."""
    count: float | None = None
    """The engine's count of drafted tokens when last looked at; None where it has told none."""
    counted_answers: Count = 0
    """Answers that had come by that look."""
    idle_answers: Count = 0
    """Those of them between two looks that found the same count."""
    lost: bool = False
    """Whether the count was known, and is not in the end."""
    looked_answers: Count = 0
    """Answers that had come when its engine's word was last asked for."""
    idle_by_word: Count = 0
    """Those of them after which the engine said that it drafts nothing."""
    turned_idle: bool = False
    """Whether its engine says in the end that it drafts nothing, and did not in the beginning."""

    def see(self, answer: Answer) -> None:
        """Takes in one answer."""
        self.requests += 1
        self.tokens += len(answer.token_ids)
        self.seconds += answer.seconds
        if answer.drafted is not None:
            self.drafted = (self.drafted or 0) + answer.drafted
            if len(answer.token_ids) > _DUE:
                self.due += 1
                self.undrafted += answer.drafted == 0
        named = pinned_k(answer.system_fingerprint) == 0
        self.pins_named += named
        if named or answer.drafted is not None:
            self.pins_shown += 1
        elif len(answer.token_ids) > 1:  # the first token of an answer is drafted for nobody
            self.pins_hidden += 1
        if (whole := answer.system_fingerprint) and len(self.names) < _MOST_NAMES:
            name = own_part(whole)
            mark, pin = whole.partition("+k")[1:]
            if pin and self.pinned is None and not is_partial(name):
                self.pinned = f"{name}{mark}{pin}"
            if name not in self.names:
                self.names.append(name)

    def note_count(self, now: float | None) -> None:
        """Takes in the engine's count of drafted tokens at this moment; None where it is away.

        What is known of answers that came before the first count is nothing, in whichever
        attempt that was.
        """
        if self.count is None:
            self.count = None if self.requests else now
            return
        self.lost = now is None
        if now is not None:
            self.counted = True
            drafts = has_drafted(self.count, now)
            self.speculates |= drafts
            self.idle_answers += 0 if drafts else self.requests - self.counted_answers
            self.count, self.counted_answers = now, self.requests

    def note_word(self, *, is_idle: bool) -> None:
        """Takes in whether the engine says at this moment that it drafts nothing."""
        self.idle_by_word += is_idle * (self.requests - self.looked_answers)
        self.looked_answers = self.requests

    @property
    def paths(self) -> list[str]:
        """The names met that stand for all facts: while some are gathered, a name is no path yet.

        >>> ArmTotals(names=["sd1:p~0123456789abcdef", "sd1:p0123456789abcdef"]).paths
        ['sd1:p0123456789abcdef']
        """
        return [name for name in self.names if not is_partial(name)]

    @property
    def is_mixed(self) -> bool:
        """Whether the answers may be of two ways of serving, and their names do not deny it."""
        return self.replaced and len(self.paths) != 1

    @property
    def has_drafts(self) -> bool:
        """Whether anything was drafted for its answers, which the engine need not say of each."""
        return self.speculates if self.drafted is None else self.drafted > 0

    @property
    def shows_pin(self) -> bool:
        """Whether each answer to a pinned request tells what was drafted for it, or names the pin.

        A gateway that drops what it does not know drops the pin as well, and there may be one
        before some of the engines that answer at an address.
        """
        return self.pins_shown > 0 and not self.pins_hidden

    @property
    def rates(self) -> tuple[Rate, ...]:
        """What it counts of answers, and how many these are."""
        return (
            Rate(self.undrafted, self.due),
            Rate(self.idle_answers, self.counted_answers),
            Rate(self.counted_answers, self.requests),
            Rate(self.idle_by_word, self.looked_answers),
            Rate(self.looked_answers, self.requests),
            Rate(self.pins_named, self.pins_shown),
            Rate(self.pins_shown + self.pins_hidden, self.requests),
        )

    @property
    def idle(self) -> Rate:
        """Answers without any draft, of those that were long enough for some.

        Where these are few, those during which the engine drafted for nobody count as well. They
        do not beside what nearly all answers tell: several engines may answer, and one of them
        have the counters.
        """
        told = Rate(self.undrafted, self.due)
        if self.tells_idleness:
            return told
        counted = Rate(self.idle_answers, self.counted_answers)
        return max(told, counted, key=lambda one: one.rate or 0.0)

    @property
    def tells_idleness(self) -> bool:
        """Whether enough answers tell whether anything was drafted for them: short ones do not."""
        return self.due >= _TELLING * self.requests

    @property
    def tokens_per_second(self) -> float | None:
        """Of one request, on average; None before there was any."""
        return self.tokens / self.seconds if self.seconds else None


@dataclass(slots=True)
class Totals:
    """Counts of pairs and of those that differ."""

    prompts: Count = 0
    """Answered by both arms."""
    refused: Count = 0
    mismatches: Count = 0
    with_tools: Count = 0
    tool_mismatches: Count = 0
    """Prompts with tools whose calls differ in name or arguments."""
    structural: Count = 0
    reference_pairs: Count = 0
    reference_mismatches: Count = 0
    serving_pairs: Count = 0
    serving_mismatches: Count = 0
    stream_only: Count = 0
    """Prompts whose streamed and non-streamed output differ in the serving arm alone."""
    streamed_in_both: Count = 0
    """Those where they differ in each arm."""
    streamed_by_reference: Count = 0
    """Those of the reference alone."""
    retold: Count = 0
    """Prompts whose equal tokens became another text, or end, in the serving arm than in the
    reference."""
    alone_pairs: Count = 0
    """Prompts that the reference was asked with nothing else in the engine."""
    alone_mismatches: Count = 0
    looked: Count = 0
    """Prompts of which the target was fed the reference's answer in one pass."""
    flipped: Count = 0
    """Those in which it would have said another token somewhere."""
    more_asks: Count = 0
    """Requests besides the four of a prompt that were answered with a whole answer."""
    looks: Count = 0
    """Passes over an answer that the target was fed."""
    empty: Count = 0
    """Prompts to which neither arm answered a single token."""
    compared: dict[str, Count] = field(default_factory=dict)
    """Tokens up to the first that differs, or to the end, by what was compared."""
    patterns: dict[str, Count] = field(default_factory=dict)
    """How many prompts had which pattern of equal answers."""
    structured: Count = 0
    """Prompts that require a structure which answers were held against."""
    serving_invalid: Count = 0
    """Those of them where the serving arm breaks it."""
    reference_invalid: Count = 0
    seconds: float = 0.0
    """By the clock, over all attempts."""
    serving: ArmTotals = field(default_factory=ArmTotals)
    reference: ArmTotals = field(default_factory=ArmTotals)
    calibration: Calibration = field(default_factory=Calibration)

    def take(self, answers: PromptAnswers) -> None:
        """Takes in what both arms answered to one prompt, and where that parts."""
        cross, again, twice = answers.cross, answers.reference_twice, answers.serving_twice
        has_tools = answers.prompt.has_tools
        self.prompts += 1
        self.mismatches += cross is not None
        self.structural += bool(cross and cross.structure)
        self.with_tools += has_tools
        self.tool_mismatches += bool(has_tools and cross and cross.structure)
        self.reference_pairs += 1
        self.reference_mismatches += again is not None and not again.stream_only
        self.serving_pairs += 1
        self.serving_mismatches += twice is not None and not twice.stream_only
        self.stream_only += bool(twice and twice.streamed_alone)
        self.streamed_by_reference += bool(again and again.streamed_alone)
        self.retold += answers.is_retold
        self.streamed_in_both += any(one and one.in_both for one in (again, twice))
        self._see_floors(answers)
        self._count_validity(answers.validity)
        self._measure(answers)

    def note_replaced(self, arms: Collection[Name]) -> None:
        """Takes in which arms' engines were replaced."""
        self.serving.replaced |= "serving" in arms
        self.reference.replaced |= "reference" in arms

    def _see_floors(self, answers: PromptAnswers) -> None:
        """Takes in what the reference differs from itself by."""
        pattern = answers.pattern
        self.patterns[pattern] = self.patterns.get(pattern, 0) + 1
        if answers.alone is not None:
            self.alone_pairs += 1
            self.alone_mismatches += answers.alone.token_ids != answers.reference[0].token_ids
        if answers.looks:
            self.looked += 1
            self.flipped += answers.looks[0] is not None
        self.more_asks += len(answers.serving) + len(answers.reference) - 4
        self.more_asks += answers.alone is not None
        self.looks += len(answers.looks)

    def _count_validity(self, found: Validity | None) -> None:
        if found is None:
            return
        self.structured += 1
        self.serving_invalid += found.serving is not None
        self.reference_invalid += found.reference is not None

    def _measure(self, answers: PromptAnswers) -> None:
        """Takes in how much was answered, and how far the reference's margins lie apart."""
        serving, reference = answers.serving, answers.reference
        for each, sums in ((serving, self.serving), (reference, self.reference)):
            for answer in each:
                sums.see(answer)
        self.calibration.see("reference", reference[0])
        first, again = reference[:2]
        self.empty += not (first.token_ids or serving[0].token_ids)
        common = common_length(first.token_ids, again.token_ids)
        self.calibration.compare(first, again, common)
        compared = {
            "mismatches": common_length(serving[0].token_ids, first.token_ids),
            "repeat": common,
        }
        if answers.alone is not None:
            compared["batch"] = common_length(answers.alone.token_ids, first.token_ids)
        if answers.looks:
            flip = answers.looks[0]
            compared["shape"] = len(first.token_ids) if flip is None else flip[0]
        for name, tokens in compared.items():
            self.compared[name] = self.compared.get(name, 0) + tokens

    @property
    def batch_floor(self) -> Rate:
        """The reference alone against the reference among others."""
        return Rate(self.alone_mismatches, self.alone_pairs)

    @property
    def shape_floor(self) -> Rate:
        """The reference against itself, fed its own answer in one pass."""
        return Rate(self.flipped, self.looked)

    @property
    def cross(self) -> Rate:
        """Serving against reference."""
        return Rate(self.mismatches, self.prompts)

    @property
    def floor(self) -> Rate:
        """The reference against itself."""
        return Rate(self.reference_mismatches, self.reference_pairs)

    @property
    def serving_floor(self) -> Rate:
        """The serving arm against itself."""
        return Rate(self.serving_mismatches, self.serving_pairs)

    @property
    def tools(self) -> Rate:
        """Prompts with tools whose calls differ."""
        return Rate(self.tool_mismatches, self.with_tools)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the store: written after every prompt, so without `asdict`'s copies."""
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "serving": asdict(self.serving),
            "reference": asdict(self.reference),
            "calibration": self.calibration.as_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Totals:
        """What `as_json` gave, or the beginning of nothing; raises WrongType for anything else."""
        calibration = Calibration.from_json(data.get("calibration", {}))
        found = read_record(cls, {**data, "calibration": calibration})
        rates = (
            found.cross, found.floor, found.serving_floor, found.tools, found.batch_floor,
            found.shape_floor, *found.serving.rates, *found.reference.rates,
        )  # fmt: skip
        if any(rate.count > rate.of for rate in rates):
            raise WrongType("more differ than were compared")
        if sum(found.patterns.values()) > found.prompts:
            raise WrongType("more prompts have a pattern than were answered")
        for pattern in found.patterns:
            check_pattern(pattern)
        return found


_COUNTS = tuple(
    one.name for one in fields(Totals) if one.name not in ("serving", "reference", "calibration")
)


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
                found.material_doubtful += not _is_clear(case.divergence, near_tie)
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
        pins_served=Rate(totals.serving.pins_named, totals.serving.requests),
        drafts_lost=totals.serving.drafted is None and totals.serving.lost,
        turned_idle=totals.serving.turned_idle
        and (arms[0].drafts_by_text or not totals.serving.tells_idleness),
        mixed=next((a.name for a, one in _sums(arms, totals) if one.is_mixed), None),
    )
    return Outcome(
        judge(evidence, threshold), threshold, totals, classes, arms, floor, excess, refused, calls,
        (*_copy_notices(copies), *_notices(arms, totals, classes, floor)),
    )  # fmt: skip


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


def _is_clear(found: Divergence, near_tie: float) -> bool:
    """Whether both arms were so sure that nobody need look again; an ended answer has no say."""
    margins = (found.margin_serving, found.margin_reference)
    known = [abs(margin) for margin in margins if margin is not None]
    wanted = 1 if None in (found.serving_token, found.reference_token) else 2
    return len(known) >= wanted and min(known) > CLEAR * near_tie


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
