"""What the answers of a check add up to, arm by arm: the sums that a run goes on from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.arms import Name, has_drafted
from specdeck.engine.divergence.calibration import Calibration
from specdeck.engine.divergence.compare import PromptAnswers, common_length
from specdeck.engine.divergence.floors import check_pattern
from specdeck.engine.divergence.statistics import Rate
from specdeck.engine.divergence.structured import Validity
from specdeck.engine.fingerprint.name import is_partial, own_part, pinned_k
from specdeck.engine.protocol.codec import Count, WrongType, read_record

_MOST_NAMES = 20
"""Of one arm: under a policy every k has its own."""
_DUE = 4
"""Tokens: a longer answer gives a drafter more than one occasion."""
_TELLING = 0.9
"""The share of answers that must be so long for idleness to be told by them alone."""
_NO_ACCIDENT = 0.5
"""The share of answers without a draft, however short, that no engine that drafts reaches."""


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
    told: Count = 0
    """Answers of more than a token of which the engine says how many drafts there were."""
    told_undrafted: Count = 0
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
    unshown: Count = 0
    """Answers that do not show themselves that anything was drafted for them."""
    looked_unshown: Count = 0
    """Those of them that had come when its engine's word was last asked for."""
    looked_answers: Count = 0
    """Answers that had come when its engine's word was last asked for."""
    idle_by_word: Count = 0
    """Those of them that show no draft, and after which the engine said that it drafts nothing."""
    unheard: Count = 0
    """Those of them that show none, and after which it could not be asked."""
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
            if len(answer.token_ids) > 1:
                self.told += 1
                self.told_undrafted += answer.drafted == 0
        self.unshown += not answer.drafted
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

    def note_word(self, *, is_idle: bool | None) -> None:
        """Takes in whether the engine says at this moment that it drafts nothing; None where it
        cannot be asked."""
        answers = self.unshown - self.looked_unshown
        self.unheard += answers if is_idle is None else 0
        self.idle_by_word += answers if is_idle else 0
        self.looked_answers, self.looked_unshown = self.requests, self.unshown

    def resume_count(self, now: float | None) -> None:
        """Goes on from the engine's count at this moment, after a time in which nobody looked.

        What it drafted meanwhile it drafted for others, and of answers since the last look it is
        not known to have drafted for any. A count that is away is none from here on.
        """
        if self.count is not None:
            self.idle_answers += self.requests - self.counted_answers
            self.counted_answers = self.requests
            self.count, self.lost = now, now is None

    def resume_word(self) -> None:
        """Goes on after the same: nobody knows what the engine would have said by those answers."""
        self.note_word(is_idle=None)

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
            Rate(self.told_undrafted, self.told),
            Rate(self.told, self.requests),
            Rate(self.idle_answers, self.counted_answers),
            Rate(self.counted_answers, self.requests),
            Rate(self.idle_by_word, self.looked_answers),
            Rate(self.unheard, self.looked_answers),
            Rate(self.unshown, self.requests),
            Rate(self.looked_unshown, self.unshown),
            Rate(self.looked_answers, self.requests),
            Rate(self.pins_named, self.pins_shown),
            Rate(self.pins_shown + self.pins_hidden, self.requests),
        )

    @property
    def idle(self) -> Rate:
        """Answers without any draft, of those that were long enough for some.

        Where these are few, those during which the engine drafted for nobody count as well. They
        do not beside what nearly all answers tell: several engines may answer, and one of them
        have the counters. So few have drafts now and then, and most of them never by accident.
        """
        long = Rate(self.undrafted, self.due)
        if self.tells_idleness:
            return long
        found = [long, Rate(self.idle_answers, self.counted_answers)]
        told = Rate(self.told_undrafted, self.told)
        if self.told >= _TELLING * self.requests and (told.rate or 0.0) > _NO_ACCIDENT:
            found.append(told)
        return max(found, key=lambda one: one.rate or 0.0)

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
    """Prompts whose whole answers have other tokens, text or end."""
    streamed_mismatches: Count = 0
    """Those whose streamed answers have other tokens."""
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
        streamed = answers.streamed
        self.streamed_mismatches += streamed is not None and not streamed.stream_only
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
    def streamed(self) -> Rate:
        """Prompts whose streamed answers have other tokens."""
        return Rate(self.streamed_mismatches, self.prompts)

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
