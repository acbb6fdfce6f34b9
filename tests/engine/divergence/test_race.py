"""Both arms side by side: what comes when, and what is made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.checks import finish_check

from specdeck.engine.divergence.answers import Answer, Call, Piece
from specdeck.engine.divergence.calibration import Calibration
from specdeck.engine.divergence.compare import find_divergence
from specdeck.engine.divergence.prompts import Prompt, parse_prompt, repeat_prompt
from specdeck.engine.divergence.race import (
    ArmStream,
    ArmText,
    FirstDifference,
    RaceEvent,
    RaceVerdict,
    race,
)
from specdeck.engine.divergence.recheck import recheck_divergence
from specdeck.engine.errors import ConfigError, EngineError, Unreachable
from specdeck.engine.operations.check import ArmPair

if TYPE_CHECKING:
    from tests.engine.divergence.conftest import Bench

PROMPT = Prompt(1, 1, {"prompt": "prompt 1"})


async def raced(lab: ArmPair, prompt: Prompt = PROMPT) -> list[RaceEvent]:
    async with lab:
        return [
            event
            async for event in race(
                lab.askers, prompt, Calibration(), threshold=lab.options.threshold
            )
        ]


def only(events: list[RaceEvent], kind: type[Any]) -> Any:
    (found,) = (event for event in events if isinstance(event, kind))
    return found


async def test_equal_answers_are_told_to_the_end(bench: Bench) -> None:
    events = await raced(bench.lab(bench.engine()))
    judged = only(events, RaceVerdict)
    assert judged.case is None
    assert judged.tokens == 40
    assert not [event for event in events if isinstance(event, FirstDifference)]
    for arm in ("serving", "reference"):
        said = [e for e in events if isinstance(e, ArmText) and e.arm == arm]
        assert sum(len(each.tokens) for each in said) == 40


async def test_a_replaced_token_is_located_and_nothing_is_said_after_it(bench: Bench) -> None:
    fault = bench.fault(index=17, margin=3.2)
    events = await raced(bench.lab(bench.engine(faults={"prompt 1": fault})))
    parted, judged = only(events, FirstDifference), only(events, RaceVerdict)
    assert parted.divergence.index == 17
    assert events[-2:] == [parted, judged]
    token = parted.divergence.serving_token
    assert parted.texts.tokens[token] == f"<{token}>"
    assert parted.texts.common.count("<") == 17


async def test_a_confident_token_is_looked_at_a_third_time(bench: Bench) -> None:
    fault = bench.fault(index=17, margin=3.2)
    judged = only(await raced(bench.lab(bench.engine(faults={"prompt 1": fault}))), RaceVerdict)
    case = judged.outcome.as_json()["cases"][0]
    assert (case["class"], case["recheck"]["confirmed"]) == ("material", True)
    assert case["recheck"]["gap"] == pytest.approx(3.2)


async def test_one_prompt_is_rechecked_by_the_threshold_of_a_check_of_many(bench: Bench) -> None:
    # The noise so far makes a tie of it; the batch has the target look at it all the same.
    engine = bench.engine(faults={"prompt 1": bench.fault(1, margin=4 * bench.step)})
    loud = Calibration({"serving": [1000, 0, 0, 0] + [1000] * 8}, {0: 1000})
    assert loud.near_tie() == 8 * bench.step
    async with bench.lab(engine) as lab:
        async for _ in race(lab.askers, PROMPT, loud, threshold=lab.options.threshold):
            pass
    assert sum("prompt_logprobs" in body for body in engine.asked) == 2


async def test_one_prompt_is_judged_by_the_share_that_was_asked_for(bench: Bench) -> None:
    judged = only(await raced(bench.lab(bench.engine(), threshold=0.25)), RaceVerdict)
    assert judged.outcome.as_json()["max_mismatch"] == 0.25


async def test_one_prompt_is_refused_where_the_arms_read_it_differently(bench: Bench) -> None:
    other = bench.engine(url="http://other", vocabulary=1)
    with pytest.raises(EngineError, match="the arms cannot be compared"):
        await raced(bench.lab(bench.engine(), other))


async def test_a_bound_gives_way_to_the_targets_own_gap(bench: Bench) -> None:
    engine = bench.engine(faults={"prompt 1": bench.fault(index=17, margin=3.2)})
    async with bench.lab(engine) as lab:
        serving, reference = lab.askers
        ours, theirs = await serving.answer(PROMPT), await reference.answer(PROMPT)
        assert isinstance(ours, Answer)
        assert isinstance(theirs, Answer)
        known = find_divergence(ours, theirs)
        assert known is not None
        for bounded, margin in ((True, 3.2), (False, 1.0)):
            found = replace(known, bounded=bounded, margin_reference=1.0)
            seen = await recheck_divergence(
                found, PROMPT, serving=ours, reference=reference, near_tie=0.125
            )
            assert seen.margin_reference == pytest.approx(margin)
            assert seen.recheck is not None
            assert seen.recheck.gap == pytest.approx(3.2)


async def test_a_tie_is_near(bench: Bench) -> None:
    fault = bench.fault(index=5, margin=bench.step)
    judged = only(await raced(bench.lab(bench.engine(faults={"prompt 1": fault}))), RaceVerdict)
    assert judged.outcome.classes.counts["near_tie"] == 1


async def test_an_arm_that_does_not_repeat_itself_is_named(bench: Bench) -> None:
    fault = bench.fault(index=5, margin=3.2)
    judged = only(
        await raced(bench.lab(bench.engine(unrepeatable={"prompt 1": fault}))), RaceVerdict
    )
    totals = judged.outcome.totals
    assert (totals.serving_mismatches, totals.reference_mismatches) == (1, 1)


async def test_text_that_the_serving_arm_alone_streams_otherwise_is_a_case(bench: Bench) -> None:
    engine = bench.engine(drafts_lose=frozenset({"prompt 1"}))
    judged = only(await raced(bench.lab(engine)), RaceVerdict)
    assert judged.case.streamed_by == "serving"
    assert judged.outcome.classes.counts["stream_only"] == 1
    assert len(judged.outcome.classes.listed) == 1
    assert judged.outcome.totals.mismatches == 0


async def test_text_that_both_arms_stream_otherwise_is_a_notice(bench: Bench) -> None:
    engine = bench.engine(stream_loses=frozenset({"prompt 1"}))
    judged = only(await raced(bench.lab(engine)), RaceVerdict)
    assert judged.case is None
    assert judged.outcome.classes.counts["stream_only"] == 0
    assert any("in both arms" in notice for notice in judged.outcome.notices)


async def test_changed_arguments_are_named_by_path(bench: Bench) -> None:
    engine = bench.engine(
        faults={"find": bench.fault(index=4, margin=bench.step)},
        calls={"find": ('{"limit": 50}', '{"limit": 500}')},
    )
    prompt = Prompt(
        1, 1, {"messages": [{"role": "user", "content": "find"}], "tools": [{"type": "function"}]}
    )
    judged = only(await raced(bench.lab(engine), prompt), RaceVerdict)
    (change,) = judged.case.divergence.structure
    assert "limit: 50 → 500" in change.line()


async def test_a_refused_prompt_is_an_error_that_says_so(bench: Bench) -> None:
    engine = bench.engine(refuse={"prompt 1": (400, "too long by 7")})
    with pytest.raises(EngineError, match="too long by 7"):
        await raced(bench.lab(engine))


async def test_a_broken_connection_is_told_at_once(bench: Bench) -> None:
    with pytest.raises(Unreachable):
        await raced(bench.lab(bench.engine(statuses=[0])))


async def test_a_race_that_is_left_asks_no_more(bench: Bench) -> None:
    engine = bench.engine()
    async with bench.lab(engine) as lab:
        events = race(lab.askers, PROMPT, Calibration(), threshold=0.015)
        await anext(events)
        await events.aclose()
    assert len(engine.asked) <= 2


async def test_copies_of_a_prompt_count_how_often_it_differs(bench: Bench) -> None:
    engine = bench.engine(faults={"prompt 1": bench.fault(index=5, margin=3.2)})
    async with bench.lab(engine) as lab:
        result = await finish_check(lab, repeat_prompt(PROMPT, 7), bench.store)
    data = result.as_json()
    assert (data["prompts"], data["mismatches"]) == (7, 7)
    assert data["noise_floor"]["pairs"] == 7


async def test_the_store_tells_of_every_engine(bench: Bench) -> None:
    for url in ("http://one", "http://two"):
        async with bench.lab(bench.engine(url=url)) as lab:
            await finish_check(lab, bench.many(3), bench.store)
    assert [run.url for run in bench.store.history()] == ["http://two", "http://one"]


def test_what_is_typed_may_be_json_and_must_be_a_prompt() -> None:
    assert parse_prompt('{"prompt": [1, 2]}').body == {"prompt": [1, 2]}
    with pytest.raises(ConfigError, match="the prompt"):
        parse_prompt('{"prompt": ')
    with pytest.raises(ConfigError):
        parse_prompt("   ")


async def test_a_pinned_request_that_drafts_is_no_reference(bench: Bench) -> None:
    with pytest.raises(EngineError, match="drafts for requests that are pinned"):
        await raced(bench.lab(bench.engine(obeys_pins=False)))


def test_parts_of_calls_are_put_together_as_they_come() -> None:
    heard = ArmStream()
    parts = [
        Piece(calls=((0, Call("search_orders", "")),)),
        Piece(calls=((0, Call("", '{"status"')),)),
        Piece(calls=((0, Call("", ': "open"}')), (1, Call("refund", '{"n"')))),
        Piece(calls=((1, Call("", ": 1}")),)),
        Piece(token_ids=(7,)),
    ]
    said = "".join([*map(heard.take, parts), heard.end(1.0)])
    assert said == 'search_orders({"status": "open"}); refund({"n": 1})'
    assert [c.name for c in heard.answer().calls] == ["search_orders", "refund"]


def test_calls_told_whole_and_between_text_read_the_same() -> None:
    heard = ArmStream()
    whole = Piece(text="I look: ", calls=((0, Call("a", "{}")), (1, Call("b", '{"x": 1}'))))
    assert heard.take(whole) == 'I look: a({}); b({"x": 1}'
    assert heard.take(Piece(text=" Done")) == ") Done"
    assert heard.end(1.0) == ""


async def test_a_raced_call_reads_as_a_call(bench: Bench) -> None:
    engine = bench.engine(calls={"find": ('{"limit": 50}', '{"limit": 50}')})
    prompt = Prompt(
        1, 1, {"messages": [{"role": "user", "content": "find"}], "tools": [{"type": "function"}]}
    )
    events = await raced(bench.lab(engine), prompt)
    for arm in ("serving", "reference"):
        said = "".join(e.text for e in events if isinstance(e, ArmText) and e.arm == arm)
        assert said == 'search({"limit": 50})'
