"""One rule for names: no credential's is passed over, and no setting is taken for one."""

import ast
import re
from collections import UserDict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.fingerprints import Fingerprints

from specdeck.engine.config.vllm_args import shipped_table
from specdeck.engine.fingerprint.secret_names import drop_secrets, is_secret, is_secret_variable
from specdeck.engine.plugin.fingerprint import plain


@pytest.mark.parametrize(
    "name",
    [
        *("token", "tokens", "hf_token", "apiKey", "APIKey", "accessToken", "authToken", "bearer"),
        *("authorization", "Proxy-Authorization", "passwd", "password", "redisPassword", "db_pass"),
        *("pass", "keys", "key", "api_keys", "apikey", "S3_ACCESS_KEY_ID", "VLLM_ADMIN_TOKEN"),
        *("VLLM_API_KEYS", "VLLM_S3_PASS", "VLLM_ACCESS_TOKENS", "VLLM_TOKEN_FILE", "ssl_key"),
        *("clientSecret", "aws_secret_access_key", "credentials", "session_cookie", "jwt"),
        *("encryption_key_2", "x-api-key", "OAuthToken", "max_access_token", "pwd", "userpass"),
    ],
)
def test_a_credential_is_secret_however_it_is_spelt(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("pw", "redis_pw", "dbpw", "DB_PW", "rootpw", "redisPw", "requirepass", "masterauth"),
        *("passkey", "accountkey", "AccountKey", "masterkey", "basicauth", "pgpass", "PGPASS"),
        *("passwort", "kennwort", "contraseña", "psk", "wifi_psk", "GITHUBTOKEN", "idtoken"),
        *("bottoken", "awscreds", "userpwd", "pswd", "SharedAccessKey", "awsaccesskeyid", "pkey"),
        *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-honeycomb-team"),
    ],
)
def test_a_common_name_of_a_credential_is_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "token1",
            "apikey2",
            "apiKey2",
            "API_KEY_2",
            "pass1",
            "redis_pass_1",
            "pwd2",
            "password3",
        ),
        *("passPhrase", "pass_word", "pass-code", "ｐａｓｓｗｏｒｄ", "pass\u200bword", "秘token"),
    ],
)
def test_a_number_a_gap_or_another_alphabet_hides_no_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("max_tokens", "maxTokens", "tokenizer", "tokenizer_mode", "skip_tokenizer_init"),
        *("num_speculative_tokens", "num_speculative_tokens_per_batch_size", "tokens_per_block"),
        *("tokensPerBlock", "max_num_batched_tokens", "kv_cache_size_tokens", "num_queued_tokens"),
        *("cache_hit_alignment_tokens", "num_experts_per_token", "suffix_decoding_min_token_prob"),
        *("rope_kvcache_fusion_max_token_num", "dbo_decode_token_threshold", "eos_token_id"),
        *("long_prefill_token_threshold", "encoder_cudagraph_token_budgets", "bos_token"),
        *("_reasoning_start_token_ids", "per_token", "per_token_dynamic", "scheduled_token_delta"),
        *("speculative_token_tree", "image_token_index", "num_key_value_heads", "key_dtype"),
        *("stop_token_ids", "moe_token_dropout", "quant_key", "kv_key", "cache_key", "keypoints"),
        *("pass_config", "inductor_passes", "post_grad_custom_post_pass", "fusion_pass", "author"),
        *("VLLM_ENABLE_PREGRAD_PASSES", "VLLM_MAX_BAD_WORDS_TOTAL_TOKENS", "VLLM_USE_FASTOKENS"),
        *("VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE", "VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD"),
        *("lmcache_chunk_tokens", "prefill_tokens", "stop_tokens", "block_tokens"),
        *(
            "per_act_token_quant",
            "token_ids",
            "pad_token_id",
            "prefix_caching_hash_algo",
            "keyword",
        ),
        *("kv_transfer_config", "passes", "bypass", "compass", "monkey", "bpw", "pw_split", "n_pw"),
        *("bostoken", "maxtokens", "tiktoken", "Token2Wav", "DeepseekV32MultiTokenPredictor"),
        *(
            "sortkey",
            "authority",
            "completion_tokens",
            "accepted_tokens",
            "pass_through",
            "lowpass",
            "twopass",
            "subtokens",
            "keywords",
        ),
    ],
)
def test_a_setting_that_computes_is_none(name: str) -> None:
    assert not is_secret(name)


def test_no_argument_of_vllm_is_taken_for_a_credential() -> None:
    known = shipped_table()
    found = set(filter(is_secret, {*known.engine, *known.speculative}))
    assert found == {"api_key", "hf_token", "allow_credentials"}  # the last is true or false


def _list_settings(folder: Path) -> Iterator[str]:
    """The fields of vLLM's own configs, at whatever depth, and its variables."""
    for file in (folder / "config").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        yield part.target.id
    yield from re.findall(r"\bVLLM_[A-Z0-9_]+", (folder / "envs.py").read_text(encoding="utf-8"))


@pytest.mark.skipif(find_spec("vllm") is None, reason="the settings are vLLM's own")
def test_no_setting_of_the_installed_vllm_is_taken_for_a_credential() -> None:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    settings = set(_list_settings(Path(spec.origin).parent))
    assert {"max_num_batched_tokens", "pass_config", "VLLM_API_KEY"} <= settings
    found = set(filter(is_secret, settings)) - {"api_key", "hf_token", "VLLM_API_KEY"}
    # That of a watermark is one, and the other is a cache of vLLM's.
    assert found <= {"key", "derived_max_model_len_and_key"}


def test_no_fact_of_a_fingerprint_is_withheld() -> None:
    facts = Fingerprints().facts()
    assert plain(facts) == facts


def test_a_working_folder_is_no_credential() -> None:
    environment = {"PWD": "/srv", "OLDPWD": "/", "DB_PWD": "s"}
    assert drop_secrets(environment) == {"PWD": "/srv", "OLDPWD": "/"}
    assert is_secret_variable("PGPASSWORD")


def test_a_variable_that_another_thread_deletes_is_left_out() -> None:
    class Shared(UserDict[str, str]):
        def __getitem__(self, name: str) -> str:
            self.data.pop("PYTEST_CURRENT_TEST", None)
            return self.data[name]

    shared = Shared({"HOME": "/", "PYTEST_CURRENT_TEST": "this"})
    assert drop_secrets(shared) == {"HOME": "/"}
