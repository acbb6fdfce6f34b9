from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from specdeck.engine.errors import BadPage, NotAnEngine
from specdeck.engine.metrics import page as page_
from specdeck.engine.metrics.page import parse
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import between

Pages = Callable[[str], str]
RECORDED = ["speculative-idle", "speculative", "speculative-busy", "target-only"]


def look(text: str) -> Sample:
    return parse(text, t=1000.0, at=10.0)


def agrees(part: str, whole: Sample) -> bool:
    """Whether `part` is refused, or says nothing that the whole page does not say."""
    try:
        sample = look(part)
    except (BadPage, NotAnEngine):
        return True
    figures = [f.name for f in fields(Sample)]
    return all(getattr(sample, f) in (None, getattr(whole, f)) for f in figures)


def test_a_page_under_load_gives_every_figure(page: Pages) -> None:
    sample = look(page("speculative-busy"))
    assert sample.model == "demo"
    assert sample.engines == 1
    assert sample.process_start == 1795250659.99
    assert (sample.drafts, sample.drafted, sample.accepted) == (347.0, 1735.0, 408.0)
    assert sample.accepted_per_position == (196.0, 105.0, 57.0, 34.0, 16.0)
    assert sample.k_max == 5
    assert sample.drafted_per_position is None
    assert (sample.generated, sample.prompt, sample.preemptions) == (753.0, 560.0, 0.0)
    assert (sample.prefix_queries, sample.prefix_hits) == (560.0, 0.0)
    assert (sample.running, sample.waiting) == (1.0, 0.0)
    assert sample.kv_cache_usage == 0.0009770395701026446
    assert sample.ttft is not None
    assert sample.ttft.bounds[-1] == math.inf
    assert sample.ttft.counts[-1] == 12.0
    assert sample.itl is not None


def test_a_page_without_speculation_has_no_drafts(page: Pages) -> None:
    sample = look(page("target-only"))
    assert (sample.drafts, sample.accepted_per_position, sample.k_max) == (None, None, None)
    assert sample.generated == 256.0


def test_two_pages_of_one_life_make_a_window(page: Pages) -> None:
    older = parse(page("speculative"), t=1000.0, at=10.0)
    newer = parse(page("speculative-busy"), t=1000.7, at=10.7)
    window = between(older, newer)
    assert window is not None
    assert window.draft_tokens_per_draft == 5.0
    assert window.acceptance_rate is not None
    assert 0 < window.acceptance_rate < 1


@pytest.mark.parametrize("name", RECORDED)
def test_the_filter_loses_nothing_that_the_stock_parser_finds(page: Pages, name: str) -> None:
    text = page(name)
    stock = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    sample = look(text)
    assert sample.generated == stock["vllm:generation_tokens_total"]
    assert sample.drafted == stock.get("vllm:spec_decode_num_draft_tokens_total")
    assert sample.ttft is not None
    assert sample.ttft.counts[-1] == stock["vllm:time_to_first_token_seconds_count"]


@pytest.mark.parametrize("name", RECORDED)
def test_data_parallel_engines_are_summed(page: Pages, two_engines: Pages, name: str) -> None:
    one, both = look(page(name)), look(two_engines(page(name)))
    assert both.engines == 2
    assert both.generated == 2 * (one.generated or 0.0)
    assert both.kv_cache_usage == one.kv_cache_usage
    if one.accepted_per_position is not None:
        assert both.accepted_per_position == tuple(2 * n for n in one.accepted_per_position)
    assert one.itl is not None
    assert both.itl is not None
    assert both.itl.counts == tuple(2 * count for count in one.itl.counts)


def test_of_several_models_the_busiest_is_meant(page: Pages, two_engines: Pages) -> None:
    text = re.sub(
        r'engine="1",(.*)model_name="demo"',
        r'engine="0",\1model_name="other"',
        two_engines(page("speculative")),
    )
    text = text.replace('model_name="other"} 256.0', 'model_name="other"} 999.0')
    sample = look(text)
    assert (sample.model, sample.engines, sample.generated) == ("other", 1, 999.0)


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("doubled", [False, True])
def test_a_page_cut_between_two_lines_tells_nothing_wrong(
    page: Pages, two_engines: Pages, name: str, doubled: bool
) -> None:
    text = two_engines(page(name)) if doubled else page(name)
    # Families that are not read only make the test long.
    text = re.sub(r"(?m)^(# \w+ )?(vllm:(request|e2e|external|mm)|python|http)_.*\n", "", text)
    # Without the `_created` ones, which nothing guarantees, those that are read follow each other.
    bare = re.sub(r"(?m)^(# \w+ )?vllm:\S*_created[{ ].*\n", "", text)
    for whole in (text, bare):
        truth, lines = look(whole), whole.splitlines(keepends=True)
        assert truth == look(two_engines(page(name)) if doubled else page(name))
        wrong = [n for n in range(len(lines)) if not agrees("".join(lines[:n]), truth)]
        assert wrong == []


@given(share=st.floats(0, 1), name=st.sampled_from(RECORDED), doubled=st.booleans())
def test_a_page_cut_anywhere_tells_nothing_wrong(
    page: Pages, two_engines: Pages, share: float, name: str, doubled: bool
) -> None:
    text = two_engines(page(name)) if doubled else page(name)
    assert agrees(text[: int(share * len(text))], look(text))


@given(start=st.floats(0, 1), junk=st.text(max_size=40), name=st.sampled_from(RECORDED))
def test_garbage_inside_a_page_is_a_bad_page_or_none_at_all(
    page: Pages, start: float, junk: str, name: str
) -> None:
    text = page(name)
    at = int(start * len(text))
    try:
        line = repr(look(text[:at] + junk + text[at:]))
    except (BadPage, NotAnEngine) as refusal:
        line = refusal.line()
    assert "\n" not in line


def test_a_page_without_its_last_newline_is_cut(page: Pages) -> None:
    with pytest.raises(BadPage, match="cut short"):
        look(page("speculative").rstrip("\n"))
    with pytest.raises(BadPage, match="cut short"):
        look(page("speculative")[:200])


@pytest.mark.parametrize(
    ("find", "put"),
    [
        (r'(?m)^vllm:inter_token_latency_seconds_bucket\{.*le="\+Inf".*\n', ""),
        (r'(?m)^vllm:spec_decode_num_acc\S*_per_pos_total\{.*position="2".*\n', ""),
        (r"(?m)^(vllm:generation_tokens_total\{.*\}) .*$", r"\1 abc"),
        (r"(?m)^(vllm:generation_tokens_total\{.*\}) .*$", r"\1 -3"),
        (r"(?m)^(vllm:generation_tokens_total\{.*\}) .*$", r"\1 " + "9" * 400),
        (r"(?m)^(vllm:generation_tokens_total)\{.*$", r"\1{"),
        (r'(?m)^(vllm:time_to_first_token_seconds_bucket\{.*le="0.001".*) .*$', r"\1 500"),
    ],
    ids=["no +Inf", "no position", "no number", "negative", "too large", "no labels", "falling"],
)
def test_damage_to_a_figure_is_named(page: Pages, find: str, put: str) -> None:
    text = re.sub(find, put, page("speculative"))
    with pytest.raises(BadPage, match="damaged"):
        look(text)


def test_not_a_number_is_not_known(page: Pages) -> None:
    text = re.sub(
        r"(?m)^(vllm:\S+_(?:running|perc|tokens_total)\{.*\}) .*$", r"\1 NaN", page("speculative")
    )
    sample = look(text)
    assert (sample.running, sample.kv_cache_usage, sample.generated) == (None, None, None)
    assert sample.waiting == 0.0


@pytest.mark.parametrize(
    "text", ["", "<html>hello</html>", "# HELP a b\n# TYPE a gauge\na 1.0\n", "\0\1\2vllm:"]
)
def test_a_page_without_vllms_series_is_not_an_engines(text: str) -> None:
    with pytest.raises(NotAnEngine):
        look(text)


def test_a_vllm_with_other_series_only_is_named() -> None:
    with pytest.raises(BadPage, match="none of the series"):
        look("vllm:something_else_total 1.0\nother 1.0\n")


def test_an_older_spelling_is_read(page: Pages) -> None:
    old = page("speculative").replace("vllm:inter_token_latency", "vllm:time_per_output_token")
    assert look(old).itl == look(page("speculative")).itl


def test_the_plugins_counter_is_read_even_when_it_ends_the_page(page: Pages) -> None:
    labels = 'engine="0",model_name="demo",position='
    rows = [
        f'specdeck:draft_tokens_per_position_total{{{labels}"{i}"}} {9 - i}.0\n' for i in range(5)
    ]
    text = page("speculative")
    assert look(text + "".join(rows)).drafted_per_position == (9.0, 8.0, 7.0, 6.0, 5.0)
    # One position short of what the accepted ones say: the page may have been cut there.
    assert look(text + "".join(rows[:4])).drafted_per_position is None


COUNTER = "vllm:generation_tokens_total"


def flood(line: str, count: int) -> str:
    return "".join(line.format(n) for n in range(count))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (flood(f'{COUNTER}{{{{engine="{{0}}"}}}} 1.0\n', page_.MOST_ROWS + 1), "more than .* rows"),
        (f"{COUNTER} 1.0\n" + "\n" * page_.MOST_LINES, "more than .* lines"),
        (f'{COUNTER}{{model_name="{"x" * 3000}"}} 1.0\n', "a line of more than"),
        (f"{COUNTER}{{{flood('a{0}=,', 65)}}} 1.0\n", "too many labels"),
        (f'{COUNTER}{{a="{chr(92) * 66}"}} 1.0\n', "too many labels or escapes"),
        (f"{COUNTER} 1e300\n", "a count of 1e"),
        (f"{COUNTER} {'9' * 400}\n", "damaged"),
    ],
)
def test_a_page_larger_than_any_engines_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadPage, match=words):
        look(text)


def test_a_draft_longer_than_any_is_refused() -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    with pytest.raises(BadPage, match="a draft of 300 positions"):
        look(f"{COUNTER} 1.0\n" + flood(name + '{{position="{0}"}} 1.0\n', 300) + "vllm:a 1\n")


def test_a_start_beyond_the_calendar_is_not_known() -> None:
    assert look(f"{COUNTER} 1.0\nprocess_start_time_seconds 1e17\n").process_start is None


def test_every_model_of_many_is_added_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []

    def count(rows: Sequence[page_.PageRow]) -> float | None:
        added.append(len(rows))
        return add_up(rows)

    add_up = page_.add_up
    monkeypatch.setattr(page_, "add_up", count)
    text = flood(f'{COUNTER}{{{{model_name="m{{0}}"}}}} {{0}}.0\n', 500)
    assert look(text + 'vllm:prompt_tokens_total{model_name="m499"} 1.0\n').model == "m499"
    assert sum(added) < 1000


async def test_a_large_page_is_parsed_beside_the_event_loop(page: Pages) -> None:
    text = page("speculative") + "# more\n" * 40_000
    threads: list[str] = []

    class Text(str):
        """Knows where it is read."""

        def count(self, *arguments: Any) -> int:
            threads.append(threading.current_thread().name)
            return super().count(*arguments)

    assert await page_.read_page(Text(text), t=1000.0, at=10.0) == look(page("speculative"))
    assert threading.current_thread().name not in threads


def test_what_threads_waited_is_read_and_added_up_over_ranks(page: Pages) -> None:
    rows = [
        f'specdeck:{name}{{engine="{rank}",model_name="demo"}} {value}'
        for name, value in (("cpu_watched_seconds", 2.0), ("worker_cpu_waiting_seconds", 0.5),
                            ("core_cpu_seconds", 1.0))
        for rank in (0, 1)
    ]  # fmt: skip
    sample = look("\n".join((*rows, page("speculative-busy"))))
    assert (sample.cpu_watched, sample.worker_waited, sample.core_ran) == (4.0, 1.0, 2.0)
    assert sample.core_waited is None
