import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from specdeck.engine.demo import corpus, load_process
from specdeck.engine.demo.profiles import LONG_PROMPT_CHARACTERS, PROFILES, Kind, ask

KINDS: tuple[Kind, ...] = ("predictable", "hard", "prompts")
CONTEXT = 1024
"""Tokens that the demo serves."""
TOKENIZER = Path(__file__).parents[3] / "sample_configs" / "models" / "target" / "tokenizer.json"


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_is_decided_by_seed_and_number(kind: Kind) -> None:
    first = [ask(kind, 5, number) for number in range(20)]
    assert first == [ask(kind, 5, number) for number in range(20)]
    assert first != [ask(kind, 6, number) for number in range(20)]
    assert len({each.prompt for each in first}) > 15


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_greedy_streamed_and_fits_the_context(kind: Kind) -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    for number in range(200):
        each = ask(kind, 0, number)
        assert each.prompt.strip()
        body = each.body("demo")
        assert body["stream"] is True
        assert body["temperature"] == 0
        assert len(tokenizer.encode(each.prompt)) + each.max_tokens < CONTEXT


def test_long_prompts_have_short_answers_and_nothing_in_common() -> None:
    """vLLM would answer a prompt that begins like another out of its cache, a block at a time."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    block = 16  # tokens
    asked = [ask("prompts", 0, number) for number in range(200)]
    assert {each.max_tokens for each in asked} == {12}
    lengths = [len(each.prompt) for each in asked]
    assert max(lengths) <= LONG_PROMPT_CHARACTERS == 1600
    assert min(lengths) > 1500
    encoded = [tokenizer.encode(each.prompt).ids for each in asked]
    assert min(map(len, encoded)) > 300
    assert len({tuple(ids[:block]) for ids in encoded}) > 190


def test_long_prompts_come_in_twelve_streams() -> None:
    profile = PROFILES["prompts"]
    assert [(phase.kind, phase.streams) for phase in profile.phases] == [("prompts", 12)]


def test_only_hard_text_is_confined_to_tokens_that_the_draft_does_not_know_of() -> None:
    assert "allowed_token_ids" not in ask("predictable", 0, 1).body("demo")
    one, other = (ask("hard", 0, number).body("demo")["allowed_token_ids"] for number in (1, 2))
    assert len(one) == len(other) == 256
    assert one != other


def test_each_profile_names_itself() -> None:
    assert list(PROFILES) == ["predictable", "hard", "mixed", "burst", "prompts"]
    assert tuple(PROFILES) == load_process.PROFILES
    assert all(name == profile.name for name, profile in PROFILES.items())


def test_training_text_and_prompts_come_from_different_seeds() -> None:
    trained = sum(1 for _ in corpus.idioms(20_000_000))
    assert trained < corpus.FIRST_UNSEEN_SEED


def test_the_corpus_leaves_tests_and_packages_out() -> None:
    names = {part for path in corpus.sources() for part in path.parts}
    assert "dataclasses.py" in names
    assert not names & {"site-packages", "idlelib"}


def test_the_load_generator_needs_no_torch() -> None:
    code = (
        "import sys, specdeck.engine.demo.load, specdeck.engine.demo.deepen;"
        "print([m for m in ('torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
