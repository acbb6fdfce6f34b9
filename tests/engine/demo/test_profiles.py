import subprocess
import sys

import pytest

from specdeck.engine.demo import corpus
from specdeck.engine.demo.profiles import PROFILES, Kind, ask

KINDS: tuple[Kind, ...] = ("predictable", "hard")


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_is_decided_by_seed_and_number(kind: Kind) -> None:
    first = [ask(kind, 5, number) for number in range(20)]
    assert first == [ask(kind, 5, number) for number in range(20)]
    assert first != [ask(kind, 6, number) for number in range(20)]
    assert len({each.prompt for each in first}) > 15


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_greedy_streamed_and_fits_the_context(kind: Kind) -> None:
    for number in range(50):
        each = ask(kind, 0, number)
        assert each.prompt.strip()
        body = each.body("demo")
        assert body["stream"] is True
        assert body["temperature"] == 0
        # A token is a byte at worst, and the demo serves a context of 1024.
        assert len(each.prompt.encode()) + each.max_tokens < 1024


def test_only_hard_text_is_confined_to_tokens_that_the_draft_does_not_know_of() -> None:
    assert "allowed_token_ids" not in ask("predictable", 0, 1).body("demo")
    one, other = (ask("hard", 0, number).body("demo")["allowed_token_ids"] for number in (1, 2))
    assert len(one) == len(other) == 256
    assert one != other


def test_each_profile_names_itself() -> None:
    assert list(PROFILES) == ["predictable", "hard", "mixed", "burst"]
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
