"""A gate's lines: what is as good as the baseline, worse, or not to be told; and its file."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.support.fingerprints import Fingerprints

from specdeck.engine.divergence.baseline import (
    LARGEST,
    Baseline,
    Block,
    CheckSummary,
    StructureCounts,
    Workload,
    read_baseline,
    write_baseline,
)
from specdeck.engine.divergence.gate_report import gate_junit, gate_lines, gate_markdown
from specdeck.engine.divergence.upgrade import Gate, Limits, Line, compare_with_baseline
from specdeck.engine.errors import EngineError, UsageError
from specdeck.engine.fingerprint.digest import checksum
from specdeck.engine.fingerprint.fingerprint import Unread

LIMITS = Limits()
SEEN = Fingerprints()
OTHER = SEEN.seen(model__target__weights={"a": "e" * 64})
CHECK = CheckSummary("pass", "at most 1.00% differ", 96, 0, 0.0)
BROKEN = replace(CHECK, structured=StructureCounts(9, 1, 0, 1))


def blocks(speed: float = 1.0, *, seed: int = 1, accepted: float = 2.0) -> tuple[Block, ...]:
    """A dozen of them, whose seconds vary by a few percent."""
    random = Random(seed)
    return tuple(
        Block(1024, random.uniform(0.98, 1.02) / speed, 300.0, 1200.0, 300.0 * accepted)
        for _ in range(12)
    )


def baseline(**changed: Any) -> Baseline:
    found = Baseline(
        t=1000.0,
        engine="http://engine",
        workload=Workload("code", "0f3a", 96, 128, False, 8, 1),
        check=CHECK,
        blocks=blocks(),
        answers={"a": "1", "b": "2"},
        fingerprint=SEEN.seen().as_json(),
    )
    return replace(found, **changed)


def gate(now: Baseline, before: Baseline | None = None, **changed: Any) -> Gate:
    return compare_with_baseline(before or baseline(), now, LIMITS, **changed)


def line(found: Gate, name: str) -> Line:
    return next(one for one in found.lines if one.name == name)


def test_an_engine_as_good_as_before_passes() -> None:
    found = gate(baseline(blocks=blocks(seed=2)))
    assert found.word == "pass"
    assert [one.word for one in found.lines] == ["pass"] * 6
    assert found.reason == "nothing is worse than in the baseline"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"blocks": blocks(0.8, seed=2)}, "tokens/s"),
        ({"blocks": blocks(seed=2, accepted=1.6)}, "acceptance"),
        ({"check": replace(CHECK, verdict="fail")}, "divergence"),
        ({"check": BROKEN}, "structure"),
        ({"fingerprint": OTHER.as_json()}, "fingerprint"),
    ],
)  # fmt: skip
def test_what_is_worse_is_named(changed: dict[str, Any], name: str) -> None:
    found = gate(baseline(**changed))
    assert found.word == "fail"
    assert [one.name for one in found.lines if one.word == "fail"] == [name]
    assert found.reason.startswith(f"{name}: ")


@pytest.mark.parametrize(("invalid", "word"), [(0, "pass"), (12, "pass"), (30, "fail")])
def test_what_a_target_breaks_by_a_close_call_is_no_loss(invalid: int, word: str) -> None:
    before, now = (
        baseline(check=replace(CHECK, structured=StructureCounts(200, count, count, 0)))
        for count in (10, invalid)
    )
    assert line(gate(now, before), "structure").word == word


def test_what_cannot_be_told_opens_no_gate() -> None:
    few = gate(baseline(blocks=blocks()[:2]))
    assert line(few, "tokens/s").word == "inconclusive"
    unknown = tuple(replace(one, drafts=None, drafted=None, accepted=None) for one in blocks())
    silent = gate(baseline(blocks=unknown), baseline(blocks=unknown))
    assert line(silent, "acceptance").word == "inconclusive"
    bare = gate(baseline(fingerprint=None))
    assert line(bare, "fingerprint").word == "inconclusive"
    assert [one.word for one in (few, silent, bare)] == ["inconclusive"] * 3


def shared(count: int, found: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks, the first `count` of which have somebody else's drafts and tokens in them."""
    return tuple(
        replace(one, generated=3000.0, own_drafted=500.0, drafted=1200.0) if n < count
        else replace(one, generated=1030.0, own_drafted=1190.0)
        for n, one in enumerate(found)
    )  # fmt: skip


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("accepted", [0.5, 2.0, 3.5])
@pytest.mark.parametrize("is_before", [False, True])
def test_what_others_were_served_meanwhile_neither_passes_nor_fails(
    speed: float, accepted: float, is_before: bool
) -> None:
    other, alone = shared(3, blocks(speed, seed=2, accepted=accepted)), shared(0, blocks())
    before, now = (other, alone) if is_before else (alone, other)
    found = gate(baseline(blocks=now), baseline(blocks=before))
    assert (line(found, "acceptance").word, line(found, "tokens/s").word) == ("inconclusive",) * 2
    assert found.word == "inconclusive"
    whose = "the baseline's engine" if is_before else "the engine"
    said = f"not told: {whose} served others in 3 of 12 blocks"
    assert line(found, "acceptance").said == said
    assert line(found, "acceptance").after is None
    assert line(found, "tokens/s").said.endswith(said)


def test_others_of_the_engine_that_takes_turns_are_told_as_well() -> None:
    now, paired = shared(0, blocks()), shared(12, blocks(0.5))
    found = line(gate(baseline(blocks=now), against="http://old", paired=paired), "tokens/s")
    assert found.word == "inconclusive"
    assert found.said.endswith("the engine compared with served others in 12 of 12 blocks")


def test_a_block_that_others_shared_is_left_out_where_they_are_few() -> None:
    now = shared(1, (*blocks(0.1, accepted=0.1)[:1], *blocks(seed=2)[1:]))
    found = gate(baseline(blocks=now))
    assert (line(found, "acceptance").word, line(found, "tokens/s").word) == ("pass",) * 2
    assert line(found, "acceptance").after == 3.0


def test_an_engine_whose_only_drafts_were_in_a_shared_block_is_not_said_to_draft() -> None:
    few = shared(1, drafting(1))
    found = line(gate(baseline(blocks=few), baseline(blocks=few)), "acceptance")
    assert (found.word, found.said) == ("inconclusive", "neither engine says that it drafted")


def test_drafts_that_are_no_more_made_are_a_loss() -> None:
    idle = tuple(replace(one, drafts=0.0, drafted=0.0, accepted=0.0) for one in blocks())
    assert line(gate(baseline(blocks=idle)), "acceptance").word == "fail"


def drafting(count: int, seed: int = 1) -> tuple[Block, ...]:
    """Those of `blocks`, of which the first `count` have drafts."""
    idle = (replace(one, drafts=0.0, drafted=0.0, accepted=0.0) for one in blocks(seed=seed))
    return (*blocks(seed=seed)[:count], *list(idle)[count:])


def test_drafts_that_stop_midway_are_a_loss() -> None:
    found = gate(baseline(blocks=drafting(4)))
    assert line(found, "acceptance").word == found.word == "fail"
    assert "no drafts now in 8 of 12 blocks in which the baseline's engine drafts" in found.reason
    late = line(gate(baseline(blocks=drafting(11))), "acceptance")
    assert late.word == "pass"
    # A drafter by text finds nothing in the same prompts again.
    same = gate(baseline(blocks=drafting(4, seed=2)), baseline(blocks=drafting(4)))
    assert line(same, "acceptance").word == "pass"


def test_a_baseline_whose_drafts_stop_midway_proves_nothing_of_acceptance() -> None:
    found = gate(baseline(), baseline(blocks=drafting(4)))
    assert line(found, "acceptance").word == found.word == "inconclusive"


@pytest.mark.parametrize("name", ["drafts", "accepted"])
@pytest.mark.parametrize("whose", ["before", "now"])
def test_what_the_metrics_do_not_count_is_not_taken_for_nothing(name: str, whose: str) -> None:
    uncounted: dict[str, Any] = {name: None}
    untold = baseline(blocks=tuple(replace(one, **uncounted) for one in blocks()))
    found = gate(untold) if whose == "now" else gate(baseline(), untold)
    assert line(found, "acceptance").word == "inconclusive"
    for count, word in ((1, "pass"), (6, "inconclusive")):  # where a few lack it, the others tell
        some = (*(replace(one, **uncounted) for one in blocks()[:count]), *blocks()[count:])
        untold = baseline(blocks=some)
        found = gate(untold) if whose == "now" else gate(baseline(), untold)
        told = line(found, "acceptance")
        assert told.word == word
        assert told.before == told.after == 3.0
        assert ("not known in 6 of 12 blocks" in told.said) is (count == 6)


def test_a_loss_in_the_blocks_that_tell_is_one_however_many_do_not() -> None:
    worse = blocks(accepted=0.5)
    some = (*(replace(one, drafts=None) for one in worse[:6]), *worse[6:])
    assert line(gate(baseline(blocks=some)), "acceptance").word == "fail"


def some_blocks(share: int, seed: int = 1, **changed: Any) -> tuple[Block, ...]:
    """Those of `blocks`, with one of so many `changed`."""
    every = enumerate(blocks(seed=seed))
    return tuple(replace(one, **changed) if at % share == 0 else one for at, one in every)


@pytest.mark.parametrize("how", ["alone", "in turn"])
@pytest.mark.parametrize(("share", "words"), [(2, {"fail"}), (12, {"inconclusive", "fail"})])
def test_blocks_without_a_token_weigh_as_a_loss(share: int, words: set[str], how: str) -> None:
    now = baseline(blocks=some_blocks(share, tokens=0))
    found = gate(now) if how == "alone" else gate(now, paired=blocks(), against="http://old")
    assert line(found, "tokens/s").word in words


def test_few_answers_without_a_token_are_within_what_may_be_lost() -> None:
    many = blocks() * 20
    now = baseline(blocks=(replace(many[0], tokens=0), *many[1:]))
    assert line(gate(now, baseline(blocks=many)), "tokens/s").word == "pass"


@pytest.mark.parametrize("how", ["alone", "in turn"])
def test_blocks_that_the_baseline_gave_nothing_in_are_a_doubt(how: str) -> None:
    bare, now = some_blocks(3, tokens=0), baseline(blocks=blocks(seed=2))
    found = gate(now, baseline(blocks=bare))
    if how == "in turn":
        found = gate(now, paired=bare, against="http://old")
    assert line(found, "tokens/s").word == found.word == "inconclusive"
    assert "nothing to compare with in 4 of 12 blocks" in found.reason


ALIKE, UNLIKE = {"a": "1", "b": "2"}, {"a": "8", "b": "9"}


@pytest.mark.parametrize("unread", ["model", "model.target.weights", "x, model.tokenizer", None])
@pytest.mark.parametrize("whose", ["before", "now", "both"])
def test_a_model_that_is_not_known_is_the_same_one_where_the_answers_are(
    unread: str | None, whose: str
) -> None:
    seen = SEEN.seen()
    vague = replace(seen, unread=(Unread(unread, "only the plugin can tell"),) if unread else ())
    if unread is None:
        vague = replace(seen, facts={"engine": {"vllm": "0.32.0"}})
    before = vague if whose != "now" else seen
    after = vague if whose != "before" else seen
    if unread is None and whose != "both":
        return  # facts that are there on one side alone are told as changed
    for answers, word in ((ALIKE, "pass"), (UNLIKE, "inconclusive")):
        now = baseline(answers=answers, fingerprint=after.as_json())
        found = gate(now, baseline(fingerprint=before.as_json()))
        assert line(found, "fingerprint").word == word
    assert found.word == "inconclusive"
    assert "model is not known, and most answers are not" in found.reason
    assert line(gate(baseline(answers=UNLIKE)), "fingerprint").word == "pass"


def test_engines_measured_in_turn_are_held_against_each_other() -> None:
    slow = gate(baseline(blocks=blocks(0.6)), paired=blocks(0.6, seed=3), against="http://old")
    assert line(slow, "tokens/s").word == "pass"
    assert "measured in turn" in line(slow, "tokens/s").said
    assert "another time" in line(gate(baseline()), "tokens/s").said


def test_another_k_than_the_baseline_had_is_no_fault() -> None:
    was = SEEN.seen(live__k=3).as_json()
    now = SEEN.seen(live__k=5, config__speculative__num_speculative_tokens=5).as_json()
    found = gate(baseline(fingerprint=now), baseline(fingerprint=was))
    assert found.word == "pass"
    assert "k 3 → 5" in line(found, "fingerprint").said


@pytest.mark.parametrize(
    ("accepted", "word"),
    [(1.08, "inconclusive"), (0.7, "fail"), (2.0, "pass")],
)
def test_shorter_drafts_are_no_fault_where_no_less_of_them_is_accepted(
    accepted: float, word: str
) -> None:
    # Half of four were accepted in the baseline.
    shorter = tuple(replace(one, drafted=600.0, accepted=300.0 * accepted) for one in blocks())
    found = line(gate(baseline(blocks=shorter)), "acceptance")
    assert found.word == word
    if word == "inconclusive":
        assert "4.0 tokens were drafted a round, and 2.0 now" in found.said


def longer(first: float, further: float = 60.0, *, k: int = 8) -> tuple[Block, ...]:
    """Blocks of drafts of k tokens, of which so many were accepted in each of the first four
    places, and in each one beyond."""
    places = (first,) * 4 + (further,) * (k - 4)
    return tuple(
        replace(one, drafted=300.0 * k, accepted=float(sum(places)), accepted_per_position=places)
        for one in blocks()
    )


@pytest.mark.parametrize(("first", "word"), [(110.0, "inconclusive"), (148.0, "pass")])
def test_longer_drafts_pass_where_as_many_are_accepted_in_the_places_of_before(
    first: float, word: str
) -> None:
    # As many tokens a round may come of eight poor places as of four good ones.
    was = baseline(blocks=longer(150.0, k=4))
    found = line(gate(baseline(blocks=longer(first)), was), "acceptance")
    assert found.word == word
    assert found.after is not None
    assert found.before is not None
    assert found.after > 0.95 * found.before
    if word == "inconclusive":
        assert "the first 4 brought 3.00 and bring 2.47" in found.said


@pytest.mark.parametrize("whose", ["the baseline", "the engine"])
def test_longer_drafts_pass_nothing_where_their_places_are_not_known(whose: str) -> None:
    sides = [longer(150.0, k=4), longer(150.0)]
    n = 0 if whose == "the baseline" else 1
    sides[n] = tuple(replace(one, accepted_per_position=None) for one in sides[n])
    found = line(gate(baseline(blocks=sides[1]), baseline(blocks=sides[0])), "acceptance")
    assert found.word == "inconclusive"
    assert f"{whose} does not say which of them were accepted" in found.said


def test_other_facts_and_other_answers_are_told_and_no_fault() -> None:
    newer = SEEN.seen(engine__vllm="0.33.0").as_json()
    found = gate(baseline(fingerprint=newer, answers={"a": "1", "b": "3", "c": "4"}))
    assert found.word == "pass"
    assert any("0.33.0" in fact for fact in found.changed)
    assert line(found, "answers").after == 0.5


def test_a_prompt_that_is_refused_now_is_a_loss() -> None:
    found = gate(baseline(answers={"a": "1"}))
    assert found.word == "fail"
    assert line(found, "answers").said == (
        "1 of 2 prompts that the baseline's engine answered are refused now"
    )
    assert line(gate(baseline(answers={})), "answers").word == "fail"
    assert gate(baseline(), baseline(answers={"a": "1"})).word == "pass"  # one more than before


@pytest.mark.parametrize(
    ("share", "word"),
    [(0.1, "inconclusive"), (0.96, "pass"), (1.04, "pass"), (2.0, "inconclusive")],
)
def test_answers_of_another_length_are_other_work(share: float, word: str) -> None:
    # As fast and as well drafted as before, but cut, or without an end.
    found = gate(baseline(blocks=tuple(
        replace(one, tokens=round(one.tokens * share), seconds=one.seconds * share)
        for one in blocks(seed=2)
    )))  # fmt: skip
    assert found.word == line(found, "answers").word == word
    assert (" that is other work" in line(found, "answers").said) == (word == "inconclusive")


def test_structures_that_nobody_answered_are_not_said_to_be_missing() -> None:
    before = baseline(check=replace(CHECK, structured=StructureCounts(2)))
    found = line(gate(baseline(), before), "structure")
    assert (found.word, found.said) == (
        "inconclusive", "none of the 2 prompts that require one is answered",
    )  # fmt: skip


def test_the_reports_say_the_same() -> None:
    data = gate(baseline(blocks=blocks(0.8, seed=2))).as_json()
    assert json.loads(json.dumps(data)) == data
    suite = ET.fromstring(gate_junit(data))
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("6", "1")
    page = gate_markdown(data)
    assert page.startswith("# specdeck gate: fail\n")
    assert "| tokens/s | fail | " in page
    assert gate_lines(data)[0].startswith("verdict      fail: tokens/s: ")


def test_a_baseline_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    write_baseline(baseline(), path)
    assert read_baseline(path) == baseline()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a baseline"),
        ("[]", "not a baseline"),
        ('{"specdeck_baseline": 2}', "schema 2"),
        ('{"specdeck_baseline": 1}', "edited by hand"),
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "base.json"
    with pytest.raises(UsageError, match="no baseline at"):
        read_baseline(path)
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_baseline(path)


def test_an_edited_baseline_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    write_baseline(baseline(), path)
    path.write_text(path.read_text().replace("1024", "512", 1))
    with pytest.raises(UsageError, match="edited by hand"):
        read_baseline(path)


@pytest.mark.parametrize(
    "damage",
    [
        {"t": 1e300}, {"check": {}}, {"check": {**asdict(CHECK), "structured": {"invalid": "0"}}},
        {"check": {**asdict(CHECK), "mismatch_rate": 2.0}}, {"blocks": (Block(1, -1.0),)},
        {"blocks": (Block(1, 1.0, drafts=-1.0, accepted=1.0),)},
        {"workload": Workload("code", "0f3a", 96, 128, False, 10**6, 1)},
        {"workload": Workload("code", "0f3a", 0, 128, False, 8, 1)},
    ],
    ids=str,
)  # fmt: skip
def test_a_baseline_of_nonsense_is_refused_though_its_checksum_is_right(
    damage: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "base.json"
    write_baseline(baseline(), path)
    body = json.loads(path.read_text()) | {
        name: json.loads(json.dumps(value, default=asdict)) for name, value in damage.items()
    }
    path.write_text(json.dumps({**body, "checksum": checksum(body)}))
    with pytest.raises(UsageError, match="is not a baseline: "):
        read_baseline(path)


@pytest.mark.parametrize("drafts", [(5e-324,) * 4, (1e-296, 1e-296, 1.0)])
def test_figures_without_an_end_are_no_verdict_and_no_nan(drafts: tuple[float, ...]) -> None:
    usual = (Block(1024, 1.0, 300.0, 1200.0, 600.0),) * 4
    absurd = tuple(Block(1024, 1.0, n, n, 1e12) for n in drafts)
    for before, now in ((usual, absurd), (absurd, usual)):
        found = gate(baseline(blocks=now), baseline(blocks=before))
        assert (line(found, "acceptance").word, found.word) == ("inconclusive",) * 2
        json.dumps(found.as_json(), allow_nan=False)


def test_what_would_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    absurd = Block(1024, 1.0, 1.0, 2e12, 1.0)
    with pytest.raises(EngineError, match=r"makes no baseline.*drafted is not between"):
        write_baseline(baseline(blocks=(absurd,)), path)
    assert not path.exists()


def test_a_baseline_that_is_none_by_its_size_is_neither_read_nor_written(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(UsageError, match="no baseline has more than 8,000,000 bytes"):
        read_baseline(path)
    answers = {f"{n:016x}": "0" * 16 for n in range(200_000)}
    with pytest.raises(UsageError, match="has more than 8,000,000 bytes"):
        write_baseline(replace(baseline(), answers=answers), path)
