"""Answers whose streamed and non-streamed output differ."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check
from tests.support.completion_engine import CompletionEngine

from specdeck.engine.divergence.bundle import case_page, choose_case
from specdeck.engine.divergence.report import case_line, check_junit, check_lines
from specdeck.engine.divergence.requests import RequestSettings


async def checked(bench: Bench, engine: Any, prompts: Any) -> dict[str, Any]:
    async with bench.lab(engine, max_tokens=6, threshold=0.9) as lab:
        found: dict[str, Any] = (await finish_check(lab, prompts, bench.store)).as_json()
        return found


async def test_what_both_arms_do_is_a_note_and_no_case(bench: Bench) -> None:
    engine = bench.engine(stream_loses=frozenset({"prompt 2", "prompt 3"}))
    data = await checked(bench, engine, bench.many(9))
    assert (data["verdict"], data["cases"], data["classes"]["stream_only"]) == ("pass", [], 0)
    assert (
        "streamed and non-streamed output differ for 2 prompts in both arms:"
        " the server's parser, not speculation"
    ) in data["notices"]


async def test_what_the_reference_alone_does_is_no_fault_of_speculation(bench: Bench) -> None:
    engine = bench.engine(pins_lose=frozenset({"prompt 2"}))
    data = await checked(bench, engine, bench.many(9))
    assert (data["verdict"], data["cases"]) == ("pass", [])
    assert any("in the reference alone" in notice for notice in data["notices"])


async def test_what_the_serving_arm_alone_does_is_a_fail_that_is_listed_once(bench: Bench) -> None:
    engine = bench.engine(drafts_lose=frozenset({"prompt 2"}), stream_loses=frozenset({"prompt 5"}))
    data = await checked(bench, engine, bench.many(9))
    assert (data["verdict"], data["mismatches"]) == ("fail", 0)
    assert data["reason"].endswith("in the serving arm alone")
    assert data["classes"]["stream_only"] == 1
    (case,) = data["cases"]
    assert (case["prompt"], case["class"], case["streamed_by"]) == (2, "stream_only", "serving")
    assert "margins" not in case_line(case)
    assert "\n".join(check_lines(data)).count("prompt 2") == 1


async def test_another_text_of_equal_tokens_is_a_fail_however_it_is_told(bench: Bench) -> None:
    class Garbler(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            found = super()._greedy(body, text)
            if text != "prompt 2" or body.get("vllm_xargs") is not None:
                return found
            return httpx.Response(200, content=found.content.replace(b"<", b"?"))

    data = await checked(bench, Garbler(), bench.many(9))
    assert (data["verdict"], data["mismatches"]) == ("fail", 1)
    assert data["reason"] == (
        "equal tokens became another text or end for 1 prompt in the serving arm"
    )
    (case,) = data["cases"]
    assert (case["prompt"], case["class"]) == (2, "stream_only")
    assert "equal tokens became another text or end in the serving arm" in case_line(case)


async def test_an_engine_that_does_not_repeat_itself_is_blamed_for_no_stream(bench: Bench) -> None:
    every = [f"prompt {n}" for n in range(1, 41)]
    ties = {text: bench.fault(2, bench.step) for text in every}
    engine = bench.engine(stream_loses=frozenset(every), unrepeatable=ties)
    data = await checked(bench, engine, bench.many(40))
    assert data["classes"]["stream_only"] == 0
    assert data["verdict"] != "fail"


@pytest.mark.parametrize("chat", [False, True])
async def test_a_stream_that_both_arms_tell_otherwise_is_held_against_the_references(
    bench: Bench, chat: bool
) -> None:
    class Server(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            found = super()._greedy(body, text)
            if text != "prompt 2" or body.get("vllm_xargs") is not None or not body.get("stream"):
                return found
            return httpx.Response(200, content=found.content.replace(b"<", b"?"))

    engine = Server(stream_loses=frozenset(f"prompt {n}" for n in range(9)))
    asked = [{"messages": [{"role": "user", "content": f"prompt {n}"}]} for n in range(9)]
    prompts = bench.written(*asked) if chat else bench.many(9)
    data = await checked(bench, engine, prompts)
    assert (data["verdict"], data["reason"]) == (
        "fail", "equal tokens became another text or end for 1 prompt in the serving arm"
    )  # fmt: skip
    (case,) = data["cases"]
    assert (case["class"], case["pair"]) == ("stream_only", "streamed")
    assert "in the serving arm's stream" in case_line(case)
    prompt = prompts.find(case["prompt"])
    assert prompt is not None
    page = case_page(data, case, prompt, RequestSettings(), keyed=False)
    assert page.count("curl -sN ") == 2


@pytest.mark.parametrize("streamed", [False, True])
async def test_another_reasoning_of_equal_tokens_is_a_fail(bench: Bench, streamed: bool) -> None:
    class Reasoner(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            serving = body.get("vllm_xargs") is None and bool(body.get("stream")) == streamed
            said = b"forget" if serving and text == "prompt 2" else b"recall"
            found = super()._greedy(body, text)
            reasoned = found.content.replace(
                b'{"content":', b'{"reasoning": "%b", "content":' % said
            )
            return httpx.Response(200, content=reasoned)

    asked = [{"messages": [{"role": "user", "content": f"prompt {n}"}]} for n in range(4)]
    data = await checked(bench, Reasoner(), bench.written(*asked))
    assert data["verdict"] == "fail"
    assert [case["class"] for case in data["cases"]] == ["stream_only"]


async def test_another_end_of_the_serving_arms_stream_is_a_fail(bench: Bench) -> None:
    class Server(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            found = super()._greedy(body, text)
            if text != "prompt 2" or body.get("vllm_xargs") is not None or not body.get("stream"):
                return found
            return httpx.Response(200, content=found.content.replace(b'"length"', b'"tool_calls"'))

    data = await checked(bench, Server(), bench.many(9))
    assert (data["verdict"], [case["pair"] for case in data["cases"]]) == ("fail", ["streamed"])


async def test_a_call_that_the_reference_streams_in_part_counts_as_streamed_otherwise(
    bench: Bench,
) -> None:
    class Server(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            # A parser that sees a call begin in the stream, and none in the whole.
            called = bool(body.get("stream")) and body.get("vllm_xargs") is not None
            self.calls = {text: ('{"limit": 5', "")} if called else {}
            return super()._greedy(body, text)

    body = {"messages": [{"role": "user", "content": "list"}], "tools": [{"type": "function"}]}
    data = await checked(bench, Server(drafts_lose=frozenset({"list"})), bench.written(body))
    assert data["cases"] == []
    assert any("in both arms" in notice for notice in data["notices"])


async def test_junit_names_no_case_twice(bench: Bench) -> None:
    fault = bench.fault(2, margin=3.0, honest=False)
    engine = bench.engine(
        faults={"prompt 1": fault}, drafts_lose=frozenset({"prompt 1", "prompt 2"})
    )
    data = await checked(bench, engine, bench.many(3))
    suite = ET.fromstring(check_junit(data))
    names = [(one.get("classname"), one.get("name")) for one in suite.findall("testcase")]
    assert len({name for _, name in names}) == len(names) == int(suite.get("tests", "0")) == 3
    assert len(suite.findall(".//failure")) == int(suite.get("failures", "0")) == 3


async def test_a_bundle_says_what_is_true_of_a_stream(bench: Bench) -> None:
    engine = bench.engine(drafts_lose=frozenset({"prompt 2"}))
    data = await checked(bench, engine, bench.many(3))
    case, prompt = choose_case(data, None), bench.many(3).find(2)
    assert case is not None
    assert prompt is not None
    page = case_page(data, case, prompt, RequestSettings(), keyed=False)
    assert page.startswith("# Streamed and non-streamed output differ")
    assert "first token that differs" not in page
    assert "null" not in page
    assert (page.count("curl -s "), page.count("curl -sN ")) == (1, 1)
    assert page.count('"stream": true') == 1
    assert "specdeck_k" not in page
