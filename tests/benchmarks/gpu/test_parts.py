"""Every part of `python -m benchmarks.gpu` against engines that step, with faults planted."""

import importlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.gpu.engines import Standing
from benchmarks.gpu.parts import MAIN, PARTS
from benchmarks.gpu.probe import Probe
from benchmarks.gpu.report import Report
from benchmarks.gpu.task import Task
from benchmarks.gpu.traffic import open_traffic
from benchmarks.gpu.variants import Setup
from tests.support.http_engine import serve
from tests.support.stepping_engine import SteppingEngine

Measure = Callable[..., Awaitable[Report]]


@pytest.fixture
def measure(tmp_path: Path) -> Iterator[Measure]:
    """Runs a part on the engines given by their roles; its report."""
    token, log = tmp_path / "token", tmp_path / "engine.log"
    token.write_text("a secret")
    log.write_text("INFO [core.py:1] init engine took 3 s\n")
    with ExitStack() as stack:

        async def run(name: str, **engines: SteppingEngine) -> Report:
            part = next(part for part in PARTS if part.name == name)
            standings = {role: Standing(role, "", failure="not here") for role in part.engines}
            for role, engine in engines.items():
                url, counts = stack.enter_context(serve(engine)), tmp_path / f"{role}.counts"
                probe = Probe(counts)
                engine.on_pass, engine.on_proposal = probe.count_call, probe.count_proposal
                variant = "invariant" if role == "invariant" else role
                standings[role] = Standing(
                    role, variant, url, str(token), str(log), str(counts), start_s=3.0
                )
            task = Task(part, Setup(tmp_path, small=True), standings, 60.0)
            report = Report()
            await importlib.import_module(f"benchmarks.gpu.{name}").run(task, report)
            return report

        yield run


def broken(report: Report) -> list[str]:
    return [check.sentence for check in report.checks if not check.holds]


WITH_MAIN = [part.name for part in PARTS if part.engines[:1] == (MAIN,)]


@pytest.mark.parametrize("name", WITH_MAIN)
async def test_a_sound_engine_breaks_no_check_and_leaves_as_it_was(
    measure: Measure, name: str
) -> None:
    engine = SteppingEngine()
    report = await measure(name, main=engine)
    assert broken(report) == []
    assert report.blocks
    assert (engine.k, engine.mode, engine.fallback) == (3, "speculate", "warm")


async def test_what_a_failed_part_left_is_put_back_for_the_next(tmp_path: Path) -> None:
    engine = SteppingEngine(k=1, mode="target-only", fallback="cold")
    (tmp_path / "token").write_text("a secret")
    with serve(engine) as url:
        async with open_traffic(Standing(MAIN, "tiers", url, str(tmp_path / "token"))):
            assert (engine.k, engine.mode, engine.fallback) == (3, "speculate", "warm")


@pytest.mark.parametrize("name", ["take_hold", "flips", "cold", "structured"])
async def test_a_placeholder_in_an_output_is_found(measure: Measure, name: str) -> None:
    engine = SteppingEngine(spoil=lambda tokens, k: [-1, *tokens[1:]])
    assert any("no token id below 0" in s for s in broken(await measure(name, main=engine)))


async def test_a_batch_invariant_engine_that_differs_is_found(measure: Measure) -> None:
    engine = SteppingEngine(spoil=lambda tokens, k: [*tokens[:-1], k])
    report = await measure("flips", invariant=engine)
    assert any("target-only's" in sentence for sentence in broken(report))


async def test_an_ordinary_engine_may_differ_and_the_margin_is_told(measure: Measure) -> None:
    engine = SteppingEngine(spoil=lambda tokens, k: [*tokens[:-1], k])
    report = await measure("flips", main=engine)
    assert broken(report) == []
    assert "margin up to 0.500" in report.as_markdown()


async def test_an_engine_that_refuses_under_flips_is_found(measure: Measure) -> None:
    engine = SteppingEngine()

    def fail(tokens: list[int], k: int) -> list[int]:
        engine.refuse = engine.version > 4
        return tokens

    engine.spoil = fail
    sentences = broken(await measure("structured", main=engine))
    assert "no request failed" in sentences


async def test_counters_that_do_not_follow_k_are_found(measure: Measure) -> None:
    class Deaf(SteppingEngine):
        @property
        def k_now(self) -> int:
            return 3

    assert "vLLM's counters follow k" in broken(await measure("take_hold", main=Deaf()))


async def test_acceptance_that_is_lost_on_leaving_cold_is_found(measure: Measure) -> None:
    engine = SteppingEngine(accepts=lambda resyncs: resyncs == 0)
    assert broken(await measure("cold", main=engine)) == ["acceptance comes back"]


async def test_an_answer_against_its_schema_is_found(measure: Measure) -> None:
    report = await measure("structured", main=SteppingEngine(text='{"kind": "cla'))
    assert broken(report) == ["every answer keeps to the schema"]


async def test_a_drafter_that_makes_all_passes_at_every_k_is_found(measure: Measure) -> None:
    report = await measure("drafter_passes", probed=SteppingEngine(passes=lambda k: 3))
    assert broken(report) == [
        "`probed`: 2 passes a call at k = 2",
        "`probed`: 1 passes a call at k = 1",
        "`probed`: 1 passes a call at k = 0",
    ]


async def test_a_drafter_that_follows_k_breaks_no_check(measure: Measure) -> None:
    assert broken(await measure("drafter_passes", probed=SteppingEngine())) == []


async def test_the_plugin_is_measured_against_an_engine_without_it(measure: Measure) -> None:
    report = await measure("plugin_off", plain=SteppingEngine(), stock=SteppingEngine())
    assert "median ratio" in report.as_markdown()


async def test_step_times_are_held_against_an_engine_without_speculation(measure: Measure) -> None:
    report = await measure("step_times", main=SteppingEngine(), target=SteppingEngine(method=None))
    assert "no speculation" in report.as_markdown()
