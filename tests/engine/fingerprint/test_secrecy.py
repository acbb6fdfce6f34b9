"""One rule for what is secret: no credential is shown, and no setting is withheld."""

import time
from collections import UserDict

import pytest

from specdeck.engine.fingerprint.secrecy import drop_secrets, is_secret, redact
from specdeck.engine.fingerprint.sources import numeric_variables


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
        *(
            "lmcache_chunk_tokens",
            "prefill_tokens",
            "stop_tokens",
            "block_tokens",
            "per_act_token_quant",
        ),
    ],
)
def test_a_setting_that_computes_is_none(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://user:s3cr3t@cache:6379/0", "redis://***@cache:6379/0"),
        ("https://s3cr3t@hub.example", "https://***@hub.example"),
        ("redis://u:s3cr3t/with@cache", "redis://***@cache"),
        ("at redis://a:s3cr3t@b, redis://c:s3cr3t@d", "at redis://***@b, redis://***@d"),
        ("https://h/x?api_key=s3cr3t&k=5", "https://h/x?api_key=***&k=5"),
        ("Authorization: Bearer s3cr3t-text", "Authorization: ***"),
        ("Bearer s3cr3t-text", "Bearer ***"),
        ('{"apiKey": "s3cr3t", "max_tokens": 5}', '{"apiKey": "***", "max_tokens": 5}'),
        ("host=h password=s3cr3t", "host=h password=***"),
    ],
)
def test_a_credential_within_a_value_is_not_shown(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("http://cache:8000/a@b", "s3://bucket/model", "tcp://127.0.0.1:5555", "user@host"),
        *("vllm.config.CompilationConfig", "max_tokens=5,tokens_per_block: 16", "", "FLASH_ATTN"),
    ],
)
def test_a_value_without_one_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("variable", ["VLLM_API_KEYS", "VLLM_S3_PASS", "VLLM_ACCESS_TOKENS"])
def test_a_secret_variable_is_no_fact(variable: str) -> None:
    assert numeric_variables({variable: "s3cr3t"}) == {}


def test_a_variable_is_shown_without_the_credentials_in_it() -> None:
    given = {"VLLM_KV_STORE": "redis://user:s3cr3t@cache", "VLLM_MAX_BAD_WORDS_TOTAL_TOKENS": "5"}
    assert numeric_variables(given) == {**given, "VLLM_KV_STORE": "redis://***@cache"}


def test_a_long_unbroken_string_is_looked_at_once() -> None:
    blob = "aZ09+/" * 4 + "a" * 300_000
    assert redact(blob) == blob


def test_what_is_nested_without_an_end_is_withheld_in_no_time() -> None:
    began = time.process_time()
    for text in (
        "secrets: [" + '"\\' * 200_000,
        "secrets: " + "[" * 400_000,
        "'secrets': ['" * 40_000,
    ):
        assert redact(text).startswith(text[:9])
        assert len(redact(text)) < 20
    assert time.process_time() - began < 5


def test_a_variable_that_another_thread_deletes_is_left_out() -> None:
    class Shared(UserDict[str, str]):
        def __getitem__(self, name: str) -> str:
            self.data.pop("PYTEST_CURRENT_TEST", None)
            return self.data[name]

    shared = Shared({"HOME": "/", "PYTEST_CURRENT_TEST": "this"})
    assert drop_secrets(shared) == {"HOME": "/"}
