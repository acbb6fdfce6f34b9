from __future__ import annotations

from collections.abc import Callable

import pytest

from specdeck.engine.config.config import Config
from specdeck.engine.config.legacy import ABSORBED, GONE, MOVED

Loaded = Callable[[str], Config]
Refused = Callable[[str], str]


def texts(config: Config) -> list[str]:
    return [notice.text for notice in config.notices]


def test_older_speculative_keys_become_speculative_config(loaded: Loaded) -> None:
    config = loaded(
        "model: a/b\nspeculative_model: a/c\nnum_speculative_tokens: 4\n"
        "speculative_draft_tensor_parallel_size: 1\n"
    )
    assert config.speculative == {
        "model": "a/c",
        "num_speculative_tokens": 4,
        "draft_tensor_parallel_size": 1,
    }
    assert [notice.place.line for notice in config.notices] == [2, 3, 4]
    assert texts(config)[0] == "`speculative_model` is read as `speculative_config.model`"


def test_the_ngram_spelling_of_old_is_the_method_of_today(loaded: Loaded) -> None:
    config = loaded(
        "model: a/b\nspeculative_model: '[ngram]'\nnum_speculative_tokens: 4\n"
        "ngram_prompt_lookup_max: 9\nngram_prompt_lookup_min: 8\n"
    )
    assert config.speculative == {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 9,
        "prompt_lookup_min": 8,
    }


def test_a_batch_size_limit_becomes_a_schedule(loaded: Loaded) -> None:
    config = loaded(
        "model: a/b\nspeculative_model: a/c\nnum_speculative_tokens: 4\n"
        "speculative_disable_by_batch_size: 8\n"
    )
    assert config.speculative is not None
    tiers = config.speculative["num_speculative_tokens_per_batch_size"]
    assert tiers == [[1, 8, 4], [9, 1024, 0]]


@pytest.mark.parametrize("limit", ["x", "0", "~", "[1]"])
def test_a_batch_size_limit_that_is_none_is_left_out(loaded: Loaded, limit: str) -> None:
    config = loaded(
        "model: a/b\nspeculative_config:\n  model: a/c\n  num_speculative_tokens: 4\n"
        f"  disable_by_batch_size: {limit}\n"
    )
    assert config.speculative == {"model": "a/c", "num_speculative_tokens": 4}
    assert "is left out" in texts(config)[0]


def test_kebab_case_is_read_and_said(loaded: Loaded) -> None:
    config = loaded(
        "model: a/b\ntensor-parallel-size: 2\n"
        "speculative-config:\n  method: ngram\n  num-speculative-tokens: 3\n"
    )
    assert config.engine_args["tensor_parallel_size"] == 2
    assert config.k_max == 3
    assert config.place("speculative_config", "num_speculative_tokens").line == 5
    assert len(config.notices) == 3


def test_an_unknown_kebab_key_is_still_refused_at_its_line(refused: Refused) -> None:
    line = refused("model: a/b\nspeculative-config:\n  num-speculative-token: 3\n")
    assert line.startswith("c.yaml:3: unknown key `num_speculative_token`: did you mean")


def test_two_spellings_of_one_thing_must_agree(refused: Refused, loaded: Loaded) -> None:
    both = "model: a/b\nspeculative_config: {model: a/c, num_speculative_tokens: 5}\n"
    assert refused(both + "num_speculative_tokens: 4\n").startswith("c.yaml:3: `num_spec")
    assert loaded(both + "num_speculative_tokens: 5\n").k_max == 5


@pytest.mark.parametrize(
    "text",
    [
        "orchestration:\n  adaptive_draft: true\n  sampling: {temperature: 0.7}\n",
        "orchestration: {adaptive_draft: true}\nsampling: {temperature: 0.7}\n",
        "orchestration:\nadaptive_draft: true\nsampling:\ntemperature: 0.7\n",
    ],
    ids=["nested", "beside", "with its indentation lost"],
)
def test_sampling_is_found_wherever_a_template_put_it(loaded: Loaded, text: str) -> None:
    config = loaded("model: a/b\n" + text)
    assert config.orchestration.adaptive_draft is True
    assert config.sampling.values() == {"temperature": 0.7}


def test_a_threshold_at_the_top_is_the_breakers(loaded: Loaded) -> None:
    config = loaded("model: a/b\ndraft_acceptance_threshold: 0.65\n")
    assert config.orchestration.draft_acceptance_threshold == 0.65
    assert "draft_acceptance_threshold" not in config.engine_args


def test_short_names_of_dtypes_are_spelled_out(loaded: Loaded) -> None:
    assert loaded("model: a/b\ndtype: bf16\n").engine_args["dtype"] == "bfloat16"


def test_vllms_shorthands_are_speculation_too(loaded: Loaded) -> None:
    config = loaded("model: a/b\nspec_method: ngram\nspec_tokens: 3\n")
    assert config.method == "ngram"
    assert config.reference().speculative is None
    assert "spec_tokens" not in config.reference().engine_args


def test_speculative_config_may_be_json(loaded: Loaded) -> None:
    text = 'model: a/b\nspeculative_config: \'{"method": "ngram", "num_speculative_tokens": 3}\'\n'
    assert loaded(text).k_max == 3


def test_worker_use_ray_is_the_ray_executor(loaded: Loaded) -> None:
    config = loaded("model: a/b\nworker_use_ray: true\n")
    assert config.engine_args["distributed_executor_backend"] == "ray"


@pytest.mark.parametrize("keys", GONE, ids=".".join)
def test_what_is_gone_is_left_out_with_a_notice(loaded: Loaded, keys: tuple[str, ...]) -> None:
    text = f"{keys[0]}: 1\n" if len(keys) == 1 else f"{keys[0]}:\n  {keys[1]}: 1\n"
    config = loaded("model: a/b\n" + text)
    assert config.engine_args == {"model": "a/b"}
    assert len(config.notices) == 1
    assert config.notices[0].text.startswith(f"`{'.'.join(keys)}` is left out: ")


def test_no_older_spelling_is_translated_to_something_unknown(loaded: Loaded) -> None:
    from specdeck.engine.config.schema import ConfigSettings
    from specdeck.engine.config.vllm_args import shipped_table

    known = {*shipped_table().engine, *ConfigSettings.model_fields}
    inside = {*shipped_table().speculative, "disable_by_batch_size"}
    for target in (*MOVED.values(), *ABSORBED.values()):
        assert target[0] in known
        assert target[0] != "speculative_config" or target[1] in inside


def test_a_bound_beyond_k_max_is_said(loaded: Loaded) -> None:
    config = loaded(
        "model: a/b\nspeculative_config: {method: ngram, num_speculative_tokens: 3}\n"
        "orchestration:\n  max_draft_length: 16\n"
    )
    assert texts(config) == ["`max_draft_length: 16` is bounded by num_speculative_tokens, 3"]
