"""Replies that were honest before they were changed, through a client to all that is made of them.

Each test has as many examples as the profile says: 100, and with `make fuzz` 5,000.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.console.cli.set import Narrator, outcome_lines
from specdeck.console.cli.watch import find_lasting_error, format_row
from specdeck.console.cli.why import diagnosis_lines
from specdeck.console.screens import head
from specdeck.console.screens.fingerprint import view as fingerprint_view
from specdeck.console.screens.fingerprint.facts import FactsList
from specdeck.console.screens.live import view as live_view
from specdeck.console.screens.requests import view as requests_view
from specdeck.console.screens.tuning import view as tuning_view
from specdeck.console.screens.tuning.curve import curve
from specdeck.console.screens.tuning.dialogs import (
    bounds,
    format_parameter,
    parse_value,
    parse_wish,
    suggest_trial,
)
from specdeck.console.state.engine_state import Track, fold_reading
from specdeck.console.state.pending import add_wish, find_obstacle, fold_answer, fold_error
from specdeck.engine.blackbox.cohort_steps import read_steps, write_step
from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.client.retry import Retry
from specdeck.engine.client.secret import Secret
from specdeck.engine.divergence.answers import Answer
from specdeck.engine.divergence.arms import Arm, Facts, describe_engine
from specdeck.engine.divergence.compare import (
    Divergence,
    find_divergence,
    find_stream_divergences,
)
from specdeck.engine.divergence.likelihood import measure_surprise
from specdeck.engine.divergence.prompts import Prompt
from specdeck.engine.divergence.recheck import ask_target
from specdeck.engine.divergence.requests import (
    Asker,
    Refusal,
    RequestSettings,
    request_body,
    request_path,
)
from specdeck.engine.divergence.scoring import lay_out_places
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.compare import compare, leaves
from specdeck.engine.fingerprint.query import fetch_fingerprint
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import reading_as_json
from specdeck.engine.metrics.scrape import Scraper
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.operations.change import ChangeApplied
from specdeck.engine.operations.trial import TrialEnded, TrialSeen
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.calibration import DummySteps, StepShape
from specdeck.engine.protocol.cohorts import Cohort, CohortCell, CohortCounts, Cohorts, CohortWord
from specdeck.engine.protocol.messages import AppliedChange, Change
from specdeck.engine.sweep.analysis import VisitSums, analyse
from specdeck.engine.sweep.calibration import ShapeTime
from specdeck.engine.sweep.calibration import compare as compare_calibration
from specdeck.engine.text import format_value
from specdeck.engine.why.gather import make_evidence
from specdeck.engine.why.ranking import diagnose
from tests.hostile.lies import (
    CALIBRATE,
    COHORTS,
    COMPLETIONS,
    CONTROL,
    FACTS,
    METRICS,
    MODELS,
    REQUESTS,
    STATE,
    STEPS,
    TUNING,
)
from tests.hostile.mutations import (
    mutated_bytes,
    mutated_figures,
    mutated_json,
    mutated_values,
    spell,
)
from tests.support.completion_engine import CompletionEngine
from tests.support.fingerprints import Fingerprints
from tests.support.lying_engine import DONE, event
from tests.support.pages import recorded_page
from tests.support.readings import STATE as HONEST_STATE
from tests.support.requests_engine import TOLD as LISTED
from tests.support.tuned_engine import TRIAL, WON, tuning

# What is drawn is large now and then, and its repr is nobody's concern.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

_T = TypeVar("_T")
Answers = dict[str, bytes | tuple[int, bytes]]
"""Bodies by path, with a status where it is not 200."""

URL = "http://127.0.0.1:8000"
PAGE = recorded_page("speculative").encode()
SMALL_PAGE = b"".join(
    line
    for line in PAGE.splitlines(keepends=True)
    if b"_bucket" not in line and b"# HELP" not in line
)
"""For what asks for a page beside other things: parsing costs more than all else."""
CHANGED = {
    "t": 1_795_236_000.0, "who": "ann", "reason": "trying", "origin": "operator",
    "before": {"k": 5}, "after": {"k": 3, "goodput.margin": 0.02},
}  # fmt: skip
WHOLE_STATE = {
    **HONEST_STATE.as_json(), "version": 2, "policy_reason": "goodput: k 3", "alarm": "repeats",
    "last_change": CHANGED, "lease": {"seconds_left": 9.0, "k": 5, "mode": "speculate"},
}  # fmt: skip
WHOLE_TUNING = replace(tuning(), trial=replace(TRIAL, comparison=WON)).as_json()
ANSWERED = {
    "before": {"k": 5, "mode": "speculate", "goodput.margin": 0.01},
    "applied": {"k": 3, "mode": "target-only", "policy": "fixed", "goodput.margin": 0.02},
    "version": 4, "step": 90, "notices": ["k takes effect in the next step"],
}  # fmt: skip
SEEN = Fingerprints().seen()
TOLD = {
    "facts": SEEN.facts, "names": {"build": SEEN.build, "path": SEEN.path}, "instance": "i",
    "partial": [{"fact": "runtime.driver", "reason": "no GPU"}],
    "progress": {"finished": True, "bytes": 5, "of": 9, "reading": "model.safetensors"},
    "system_fingerprint": "vllm-0.32.0-0", "responses": {"stamped": True}, "fingerprint": SEEN.path,
}  # fmt: skip
WORKED = [
    Step(n, n / 10, 4, 4, 3, 4, 12, 8, 0.02, 12, (4, 3, 1), 0, 12, True)._asdict()
    for n in range(1, 6)
]
PROMPTS = {
    "a completion": Prompt(1, 1, {"prompt": "a"}),
    "a chat": Prompt(1, 1, {"messages": [{"role": "user", "content": "b"}]}),
}


def transport(answers: Answers) -> httpx.MockTransport:
    """Answers what it was given, whatever is asked there."""

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.get(request.url.path, (404, b"{}"))
        status, body = found if isinstance(found, tuple) else (200, found)
        return httpx.Response(status, content=body)

    return httpx.MockTransport(answer)


async def ask(answers: Answers, question: Callable[[EngineClient], Awaitable[_T]]) -> _T | None:
    """What a client makes of the answers; None where it refuses them with an error of ours."""
    client = open_client(URL, token=lambda: Secret("token"), transport=transport(answers))
    try:
        return await question(client)
    except SpecdeckError as error:
        error.line().encode()
        return None
    finally:
        await client.close()


async def read_twice(before: Answers, after: Answers) -> list[Reading]:
    """Two looks at an engine that changes its mind, and one after it has come to its senses."""
    answers, found = dict(before), []
    client = open_client(URL, transport=transport(answers))
    clock = iter(range(1000))
    scraper = Scraper(client, clock=lambda: float(next(clock)), wall=lambda: 1_795_236_060.0)
    for at in (before, after, after, before):
        answers.update(at)
        found.append(await scraper.read())
    await client.close()
    return found


def show(readings: Sequence[Reading], **known: Any) -> Track:
    """A console and `watch` on the readings; what the console knows in the end."""
    track = Track("engine", URL)
    for reading in readings:
        sample = reading_as_json(reading)
        json.dumps(sample, allow_nan=False).encode()
        find_lasting_error(reading)
        format_row(sample, str(reading.error) if reading.error else None).encode()
        track = replace(fold_reading(track, reading), **known)
        show_track(track)
    return track


def show_track(track: Track) -> None:
    """What every screen says of it."""
    live_view.live(track, (track,), 0, armed=True, stretch=None, local=time.gmtime, key_label=str)
    head.brief_control(track)
    tuning_view.status(track, str)
    tuning_view.feed(track, time.gmtime, "ann")
    curve(track, None, str)
    fingerprint_view.names(None, None, "", str, track)
    suggest_trial(track)
    for wish in (Change(k=3), Change(policy="goodput", trial_s=60.0), Change(cancel=True)):
        find_obstacle(track, wish, armed=True, key_label=str)
    with suppress(ValueError):
        parse_wish("3", "60", track)


def honest() -> Answers:
    """What nobody has changed."""
    return {METRICS: SMALL_PAGE, STATE: json.dumps(WHOLE_STATE | {"version": 1}).encode()}


@given(st.one_of(mutated_json(WHOLE_STATE), mutated_figures(WHOLE_STATE).map(spell)))
def test_a_state(body: bytes) -> None:
    show(asyncio.run(read_twice(honest(), {STATE: body})))


@given(mutated_values(WHOLE_STATE), mutated_values(WHOLE_STATE))
def test_two_states_of_one_engine(one: Any, other: Any) -> None:
    bodies = [json.dumps(each).encode() for each in (one, other)]
    show(asyncio.run(read_twice({METRICS: SMALL_PAGE, STATE: bodies[0]}, {STATE: bodies[1]})))


@given(mutated_bytes(PAGE))
def test_a_metrics_page(page: bytes) -> None:
    show(asyncio.run(read_twice(honest(), {METRICS: page})))


@given(st.data())
def test_samples_of_a_metrics_page(data: st.DataObject) -> None:
    lines = PAGE.splitlines()
    for at in data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=6)):
        name = lines[at].rpartition(b" ")[0]
        lines[at] = name + b" " + data.draw(st.sampled_from(FIGURES))
    page = b"\n".join([*lines, b""])
    show(asyncio.run(read_twice(honest(), {METRICS: page})))


FIGURES = (
    b"NaN",
    b"+Inf",
    b"-Inf",
    b"-1",
    b"1e308",
    b"1e-320",
    b"0",
    b"9" * 400,
    b"x",
    b"",
    b"1 2 3",
)


@given(st.one_of(mutated_json(WHOLE_TUNING), mutated_figures(WHOLE_TUNING).map(spell)))
def test_a_tuning(body: bytes) -> None:
    found = asyncio.run(ask({TUNING: body}, EngineClient.tuning))
    if found is None:
        return
    track = show(asyncio.run(read_twice(honest(), {})), tuning=found)
    for parameter in found.parameters:
        format_parameter(parameter, 80), bounds(parameter)
        for text in ("3", "none", "nan", "-1e400", "yes"):
            with suppress(ValueError):
                parse_value(parameter, text)
    add_wish(track, Change(k=3))
    if found.trial is None:
        return
    narrator = Narrator(Change(k=3, judge=True), URL, on_line=lambda line: None)
    applied = AppliedChange({"k": 5}, {"k": 3}, version=1, step=1)
    narrator.take(ChangeApplied(narrator.change, applied, 12.0, "specdeck set URL k=5"))
    narrator.take(TrialSeen(found.trial, found))
    narrator.take(TrialEnded(found.trial, found, 3.0, 12.0))
    outcome_lines(narrator.outcome())
    json.dumps(narrator.outcome().as_json(), allow_nan=False)


@given(st.one_of(mutated_json(ANSWERED), mutated_figures(ANSWERED).map(spell)))
def test_the_answer_to_a_change(body: bytes) -> None:
    asked = Change(k=3, reason="trying")
    found = asyncio.run(ask({CONTROL: body}, lambda client: client.put(asked)))
    if found is None:
        return
    track = show(asyncio.run(read_twice(honest(), {})))
    show_track(fold_answer(add_wish(track, asked), asked, found, 1.0, 0.012))
    narrator = Narrator(asked, URL, on_line=lambda line: None)
    narrator.take(ChangeApplied(asked, found, 12.0, format_undo(URL, found.before)))
    outcome_lines(narrator.outcome())
    json.dumps(narrator.outcome().as_json(), allow_nan=False)


REFUSED = {"error": {"code": "conflict", "message": "the version moved", "remedy": "look again"}}


@given(mutated_json(REFUSED), st.sampled_from((400, 401, 403, 404, 409, 422, 500, 501, 503)))
def test_a_refusal(body: bytes, status: int) -> None:
    refused: list[SpecdeckError] = []

    async def put(client: EngineClient) -> None:
        try:
            await client.put(Change(k=3))
        except SpecdeckError as error:
            refused.append(error)

    asyncio.run(ask({CONTROL: (status, body)}, put))
    track = show(asyncio.run(read_twice(honest(), {STATE: (status, body)})))
    show_track(fold_error(track, refused[0], 1.0))
    json.dumps(refused[0].as_json())


@given(mutated_json(TOLD))
def test_facts(body: bytes) -> None:
    found = asyncio.run(ask({FACTS: body}, fetch_fingerprint))
    if found is None:
        return
    json.dumps(found.as_json(), allow_nan=False)
    [f"{place} = {format_value(value)}" for place, value in leaves(found.facts)]
    track = Track("engine", URL)
    for comparison in (None, compare(SEEN, found), compare(found, SEEN)):
        fingerprint_view.names(found, comparison, "pin", str, track)
        [*fingerprint_view.verdict(comparison), *fingerprint_view.unknown(found)]
        [*fingerprint_view.status(found, None, None)]
        facts = FactsList()
        facts.show(found.facts, comparison)
        facts.unfold()
        facts.rows()
        facts.search_for("a")
        if comparison is not None:
            fingerprint_view.diff(comparison, "pin")
            list(comparison.lines())


@given(st.one_of(mutated_json({"steps": WORKED}), mutated_figures({"steps": WORKED}).map(spell)))
def test_steps(body: bytes) -> None:
    found = asyncio.run(ask({STEPS: body}, lambda client: client.steps(0)))
    visits = [VisitSums(3, 0), VisitSums(3, 1), VisitSums(2, 0), VisitSums(2, 1)]
    for step in found or ():
        for visit in visits:
            visit.add(step)
    json.dumps([visit.as_json() for visit in visits], allow_nan=False)
    analysis = analyse(visits, (2, 3))
    json.dumps([point.as_json() for point in analysis.curve], allow_nan=False)
    if analysis.optimum is not None:
        json.dumps(analysis.optimum.as_json(), allow_nan=False)


MADE = DummySteps("i", 4, 3, (0.01, 0.02), interrupted=False, real_s=0.015).as_json()


@given(st.one_of(mutated_json(MADE), mutated_figures(MADE).map(spell)))
def test_dummy_steps(body: bytes) -> None:
    found = asyncio.run(ask({CALIBRATE: body}, lambda client: client.calibrate(StepShape(4, 3))))
    if found is None:
        return
    times = [ShapeTime(4, 3, list(found.seconds), found.real_s), ShapeTime(8, 3, [0.01], 0.01)]
    json.dumps([each.as_json() for each in times], allow_nan=False)
    truth = compare_calibration(times)
    assert truth is not None
    json.dumps(truth.as_json(), allow_nan=False)


REQUESTED = LISTED.as_json()


@given(st.one_of(mutated_json(REQUESTED), mutated_figures(REQUESTED).map(spell)))
def test_requests(body: bytes) -> None:
    found = asyncio.run(ask({REQUESTS: body}, EngineClient.requests))
    if found is None:
        return
    track = replace(show(asyncio.run(read_twice(honest(), {}))), requests=found)
    for order in requests_view.ORDERS:
        for wanted, width in (("", 120), ("json", 60)):
            requests_view.title(found, order, wanted)
            requests_view.rows(track, order, wanted, width, str)


FINISHED = CohortCounts(40, 9000, 4000, 2, 900, (900, 800, 700), (600, 400, 200))
KINDS = [
    Cohort(prompt, "0%", "64-255", adapter, "none", "greedy", "no", "stop")
    for prompt in ("16-63", "1024-4095")
    for adapter in ("none", "sql")
]
SORTED = Cohorts(
    "i", 1_795_236_060.0, tuple(CohortCell(kind, FINISHED) for kind in KINDS),
    (CohortWord("prompt", "4-15", FINISHED),), FINISHED, 4500, (4500, 4000, 3500),
    (3000, 2000, 1000),
).as_json()  # fmt: skip
BEFORE = Cohorts.from_json(SORTED | {"t": 1_795_236_000.0})


@given(st.one_of(mutated_json(SORTED), mutated_figures(SORTED).map(spell)))
def test_cohorts(body: bytes) -> None:
    found = asyncio.run(ask({COHORTS: body}, EngineClient.cohorts))
    if found is None:
        return
    both = (write_step(None, BEFORE), write_step(BEFORE, found))
    stored = [json.loads(json.dumps(step.data, allow_nan=False)) for step in both]
    read_steps(stored[-1:] if both[-1].whole else stored)
    for looks in ([found], [BEFORE, found], [found, BEFORE]):
        with suppress(SpecdeckError):
            why = diagnose(make_evidence(URL, looks, LISTED.finished, t=found.t))
            json.dumps(why.as_json(), allow_nan=False)
            diagnosis_lines(why)


@given(mutated_json({"data": [{"id": "demo"}, {"id": "other"}]}), mutated_json({"version": "0.3"}))
def test_models_and_version(models: bytes, version: bytes) -> None:
    answers: Answers = {
        MODELS: models, "/version": version, FACTS: json.dumps(TOLD).encode(),
        STATE: json.dumps(WHOLE_STATE).encode(),
    }  # fmt: skip
    asyncio.run(ask(answers, EngineClient.models))
    asyncio.run(ask(answers, EngineClient.version))
    asyncio.run(ask(answers, lambda client: describe_engine(client, None)))
    del answers[FACTS]
    asyncio.run(ask(answers, fetch_fingerprint))


SIX = RequestSettings(max_tokens=6)
SERVING = Arm("serving", URL, "serving", Facts("demo"))


def say(prompt: Prompt, *, stream: bool = False) -> Any:
    """What an honest engine says to a prompt: one answer, or the events of one."""
    body = request_body(prompt, SIX, model="demo", stream=stream)
    request = httpx.Request("POST", URL + COMPLETIONS, json=body)
    answer = asyncio.run(CompletionEngine()(request)).content
    if not stream:
        return json.loads(answer)
    return [json.loads(line[6:]) for line in answer.split(b"\n\n") if line.startswith(b"data: {")]


def told(prompt: Prompt, body: bytes, *, stream: bool = False) -> Answer | None:
    """What is made of an answer; None for one that is refused."""

    async def answer() -> Answer | Refusal:
        http = httpx.AsyncClient(base_url=URL, transport=transport({request_path(prompt): body}))
        async with http:
            asker = Asker(http, SERVING, SIX, retry=Retry(0.0))
            found = await asker.answer(prompt, stream=stream)
            async with aclosing(asker.live(prompt)) as pieces:
                async for _ in pieces:
                    pass
            return found

    try:
        found = asyncio.run(answer())
    except SpecdeckError as error:
        error.line().encode()
        return None
    return found if isinstance(found, Answer) else None


def compare_answers(prompt: Prompt, one: Answer | None) -> None:
    """What a check says of it, beside another arm that is honest."""
    other = told(prompt, json.dumps(say(PROMPTS["a chat"])).encode())
    if one is None or other is None:
        return
    for found in (*find_stream_divergences((one, other), (other, one)), find_divergence(one, one)):
        if found is None:
            continue
        found.kind(0.1)
        json.dumps(found.as_json(), allow_nan=False).encode()
        [change.line() for change in found.structure]


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_an_answer(prompt: Prompt) -> None:
    @given(mutated_json(say(prompt)))
    def give(body: bytes) -> None:
        compare_answers(prompt, told(prompt, body))

    give()


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_a_stream(prompt: Prompt) -> None:
    def as_stream(events: Any) -> bytes:
        parts = events if isinstance(events, list) else [events]
        return b"".join(event(spell(one)) for one in parts) + DONE

    honest_events = say(prompt, stream=True)

    @given(
        st.one_of(
            mutated_values(honest_events).map(as_stream), mutated_bytes(as_stream(honest_events))
        )
    )
    def give(body: bytes) -> None:
        compare_answers(prompt, told(prompt, body, stream=True))

    give()


THOUGHTS = {
    "choices": [
        {
            "prompt_logprobs": [
                None,
                *({str(n): {"logprob": -0.5, "rank": 1}, "7": {"logprob": -2.0, "rank": 2}}
                  for n in range(1, 4)),
            ]
        }
    ]
}  # fmt: skip


@given(mutated_json(THOUGHTS), st.booleans())
def test_what_the_target_thinks(body: bytes, is_constrained: bool) -> None:
    constraint = {"tool_choice": "required"} if is_constrained else {}
    prompt = Prompt(1, 1, {"prompt": "a", **constraint})
    said = (1, 2, 3)
    answer = Answer(said, (None,) * 3, ((),) * 3, "", (), "stop", (9,), None, None, 0.1)
    apart = Divergence(2, 3, 7)

    async def ask_it() -> None:
        http = httpx.AsyncClient(base_url=URL, transport=transport({COMPLETIONS: body}))
        async with http:
            asker = Asker(http, SERVING, SIX, retry=Retry(0.0))
            found = await ask_target(apart, prompt, serving=answer, reference=asker)
            replace(apart, recheck=found).kind(0.1)

    with suppress(SpecdeckError):
        asyncio.run(ask_it())


WEIGHED = {
    "choices": [
        {"prompt_logprobs": [None, {"7": {"logprob": -0.5, "rank": 1}, "9": {"logprob": -3}}]}
    ]
}


@given(mutated_json(WEIGHED))
def test_weighed_tokens(reply: bytes) -> None:
    async def weigh() -> None:
        http = httpx.AsyncClient(base_url=URL, transport=transport({COMPLETIONS: reply}))
        async with http:
            asker = Asker(http, SERVING, SIX, retry=Retry(0.0))
            found = await asker.weigh_tokens((1, 7), last=1, candidates=20)
            if not isinstance(found, Refusal):
                measure_surprise(lay_out_places([(1, 7)], {(1, 7): found}), 0.7)

    with suppress(SpecdeckError):
        asyncio.run(weigh())


DRAWN = {"choices": [{"token_ids": [1, n], "finish_reason": "length"} for n in (2, 3)]}


@given(mutated_json(DRAWN), mutated_json({"tokens": [1, 2]}), mutated_json({"prompt": "ab"}))
def test_continuations_and_tokens(drawn: bytes, tokens: bytes, text: bytes) -> None:
    answers: Answers = {COMPLETIONS: drawn, "/tokenize": tokens, "/detokenize": text}

    async def ask_them() -> None:
        http = httpx.AsyncClient(base_url=URL, transport=transport(answers))
        async with http:
            asker = Asker(http, SERVING, SIX, retry=Retry(0.0))
            await asker.detokenize((1, 2))
            await asker.tokenize("ab")
            await asker.continuations(Prompt(1, 1, {"prompt": "a"}), n=2, tokens=2, temperature=1.0)

    with suppress(SpecdeckError):
        asyncio.run(ask_them())
