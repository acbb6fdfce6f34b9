"""What must not leave the machine, in every spelling that was thought of."""

from __future__ import annotations

import base64
import html
import json
import re
import time
import unicodedata
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.fingerprint.secrecy import MASK
from specdeck.engine.fingerprint.secret_names import list_secrets
from specdeck.engine.incident.redaction import LONGEST_TEXT, WITHHELD, Redactor
from specdeck.engine.plugin.fingerprint import plain

KEY = "zq7-planted-credential-x1"
PROMPT = "Dear Ann Example your biopsy results are"


@pytest.mark.parametrize(
    "text",
    [
        f"api_key=['{KEY}', 'other']",
        f"--api-key {KEY} other --port 8000",
        f"….--api-key first {KEY} --port 8000",
        f"['--api-key', '{KEY}', '--port', '1']",
        f"Authorization: Bearer {KEY}",
        f"Authorization: Basic {KEY}",
        f"{{'headers': {{'Cookie': 'session={KEY}; a=b'}}}}",
        f"https://ann:{KEY}@hub/x",
        f"https://hub/x?sig={KEY}&a=1",
        f"HF_TOKEN={KEY} vllm serve",
        f"password is {KEY}",
        f"with password '{KEY}'",
        f"curl -u annuser:{KEY} https://hub/x",
        f"next=%2Fa%3Fpassword%3D{KEY}",
        f"%7B%22api_key%22%3A%22{KEY}%22%7D",
        f"X-Specdeck-Token: {KEY}",
        f'{{"secret_access_key": "{KEY}"}}',
        json.dumps(json.dumps(json.dumps({"password": KEY}))),
        f"{{'password': b'{KEY}'}}",
        f"password=SecretStr('{KEY}')",
        f"password => {KEY}",
        f"password\uff1a{KEY}",
        f"<password>{KEY}</password>",
        f"('password', '{KEY}')",
        f"password: |\n  {KEY}",
        f"{{name: REDIS_PASSWORD, value: {KEY}}}",
        f"annuser:{KEY}@cache:6379",
    ],
)
def test_a_credential_that_nobody_knows_goes_by_what_stands_around_it(text: str) -> None:
    found = Redactor().hide(text)
    assert KEY not in found
    assert "ann" not in found


@pytest.mark.parametrize(
    "token",
    [
        "hf_abcdefghijklmnop", "sk-proj-abcdef123456", "ghp_abcdefghijkl12", "glpat-abcdefgh12",
        "AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc-def", "xoxb-12345678-abc",
        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY1", "hooks.slack.com/services/T0/B0/abcdef",
        "discord.com/api/webhooks/123/abcdef", "acme.webhook.office.com/webhookb2/abc@def",
    ],
)  # fmt: skip
def test_a_credential_goes_by_its_own_shape(token: str) -> None:
    assert token not in Redactor().hide(f"tried {token} twice")


def test_an_argument_of_vllms_is_no_credential_by_its_shape() -> None:
    assert Redactor().hide("hf_overrides: {}") == "hf_overrides: {}"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40))
def test_a_known_secret_goes_in_every_spelling(secret: str) -> None:
    redactor = Redactor([secret])
    url, data = quote(secret), secret.encode()
    for spelt in (
        secret, json.dumps(secret), quote(secret, safe=""), repr(secret), url,
        re.sub("%..", lambda found: found[0].lower(), url), html.escape(secret),
        json.dumps(secret).replace("/", "\\/"), data.hex(),
        base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(),
        *(base64.b64encode(user + data + b"/x").decode() for user in (b"u:", b"me:", b"you:")),
        quote(quote(secret, safe=""), safe=""),
    ):  # fmt: skip
        found = redactor.hide_credentials(f"a {spelt} b")
        assert found.strip("ab '\"=") == MASK, spelt


@pytest.mark.parametrize("secret", ["p\u00e4ssw\u00f6rd-geheim", "pa\u0308sswo\u0308rd-geheim"])
def test_a_known_secret_with_accents_goes_in_every_spelling(secret: str) -> None:
    redactor = Redactor([secret])
    for form in ("NFC", "NFD"):
        one = unicodedata.normalize(form, secret)
        data = one.encode()
        for spelt in (
            one, ascii(one)[1:-1], repr(data)[2:-1], data.decode("latin-1"), quote(quote(one)),
        ):  # fmt: skip
            assert redactor.hide_credentials(f"a {spelt} b") == f"a {MASK} b"


@pytest.mark.parametrize("before", range(LONGEST_TEXT - 60, LONGEST_TEXT + 5, 3))
@pytest.mark.parametrize("text", [KEY, f"redis://u:{KEY}@cache", f"password='{KEY}'"])
def test_a_credential_that_the_cut_goes_through_goes_whole(before: int, text: str) -> None:
    known = Redactor([KEY] if text == KEY else [])
    cut = known.hide_credentials("a " * (before // 2) + text + " b" * 50)
    assert KEY[:5] not in cut
    assert len(cut) <= LONGEST_TEXT


@pytest.mark.parametrize("end", ["...", "\u2026", "...'", ""])
def test_what_a_cut_has_left_of_a_known_secret_goes(end: str) -> None:
    assert KEY[:8] not in Redactor([KEY]).hide_credentials(f"refused {KEY[:12]}{end}")


def test_a_text_ends_where_it_ends() -> None:
    assert Redactor([KEY]).hide_credentials("the answer is zq7-p") == "the answer is zq7-p"


@pytest.mark.parametrize(
    "text",
    [
        f"prompt: {PROMPT!r}, params: x",
        f"Request a details: prompt: {PROMPT}",
        f"{{'messages': [{{'role': 'user', 'content': {PROMPT!r}}}]}}",
        f"failed for {PROMPT!r}",
        f"failed for “{PROMPT}”",
        f'output="{PROMPT}"',
        f"text: {PROMPT}",
        f"input_value={PROMPT!r}",
    ],
)
def test_a_prompt_goes_by_its_name_or_its_quotes(text: str) -> None:
    assert "biopsy" not in Redactor().hide(text)


@pytest.mark.parametrize(
    "text",
    [
        f"worse for the prompt {PROMPT}", f"prompts {PROMPT}",
        "users asked what the results of their own tests may be",
    ],
)  # fmt: skip
def test_what_a_person_retells_goes_as_well(text: str) -> None:
    found = Redactor().hide_said(text)
    assert "results" not in found
    assert WITHHELD in found


@pytest.mark.parametrize(
    "text",
    [
        "k 5 → 3, policy goodput → fixed", "goodput: k 3 → 5: 1.2 tokens per ms",
        "Avg prompt throughput: 49.9 tokens/s, Running: 0 reqs", "max_tokens=5, k=3",
        "long prompts collapsed after the upgrade", "specdeck set http://h:8000 k=5 mode=speculate",
        "The decoder prompt (length 5000) is longer than 4096",
        "/models/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "sd1:p0f3a9c1288aa4711",
        "http://gpu-1:8000 refuses connections",
    ],
)  # fmt: skip
def test_what_is_neither_stays(text: str) -> None:
    assert Redactor([KEY]).hide(text) == text


def test_values_go_by_their_names() -> None:
    given = {
        "api_key": [KEY], "environment": {"MY_TOKEN": KEY, "A": "1", "GREETING": PROMPT},
        "webhook": f"https://hooks/{KEY}", "messages": [{"content": PROMPT}], "stop": None,
        "extra": json.dumps({"chat_template": PROMPT, "k": 3}), "max_tokens": 5, "k": [1, 2],
        "prompt": 7,
    }  # fmt: skip
    found = Redactor().hide_settings(given)
    text = json.dumps(found)
    assert KEY not in text
    assert "biopsy" not in text
    assert found["max_tokens"] == 5
    assert found["k"] == [1, 2]
    assert found["environment"]["A"] == "1"
    assert found["prompt"] == 7


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["token", "prompt", "k", "a"]), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_texts_are_changed_and_the_shape_is_kept(value: object) -> None:
    def shape(one: object) -> object:
        if isinstance(one, dict):
            return [shape(each) for each in one.values()]
        if isinstance(one, list):
            return [shape(each) for each in one]
        return "" if isinstance(one, str) else one

    assert shape(Redactor().hide_texts(value)) == shape(value)


@pytest.mark.parametrize(
    "piece",
    [
        "a_", "aA1", "x", "A", "-", "a.", "prompt_", "guided_", "text=", "=", "'", '"', "'\\",
        "“", "«", "„", "[1,", "://a:", "https://", "user@", "--a-", "-a /", "-a ,", "a b ",
        "pass_", "tokens_max_", "eyJaaaaaaaa-", "said A", "token ", "Bearer ", "asked x ",
        "cookie:", "?a=", "...", "zq7-pl\u2026", "zq7-plan", "value:", "a:b@", "<token>",
        ".-a", "-eyJ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "\n", " " * (LONGEST_TEXT // 2)])
def test_no_text_takes_longer_than_it_is_long(piece: str, end: str) -> None:
    """An engine says what it likes, and an expression in C hears no signal."""
    text = (piece * LONGEST_TEXT)[: LONGEST_TEXT - len(end)] + end
    redactor = Redactor([KEY])
    began = time.process_time()
    redactor.hide_said(text)
    redactor.hide_settings({text: text})
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("depth", [65, 5_000])
def test_a_setting_may_be_nested_as_deep_as_it_likes(depth: int) -> None:
    found = Redactor().hide_settings({"x": "[" * depth + "]" * depth})
    assert isinstance(found["x"], str)


def test_a_quote_that_nobody_closes_hides_none_that_is_closed() -> None:
    text = "it's “open, and he said 'my name is Ann' to us\nthe “next line is mine”"
    assert Redactor().hide(text) == f"it{WITHHELD}my name is Ann' to us\nthe {WITHHELD}"


def test_an_option_ends_with_its_line() -> None:
    found = Redactor().hide_credentials(f"--api-key {KEY}\n--port 8000")
    assert KEY not in found
    assert "--port 8000" in found


NESTED = {
    "otlp_traces_endpoint": "http://me:hush-1@collector:4317",
    "additional_config": '{"password": "hush-2"}',
    "kv_transfer_config": {
        "kv_connector": "C",
        "hosts": [{"redis_password": "hush-3 a", "secrets": ["hush-4", "hush-5]", "a'hush-8"]}],
        "passwords": {"a": "hush-6", "b": ["hush-7"]},
        "db": 3,
    },
}


def test_secrets_nested_in_an_engines_arguments_are_in_no_incident() -> None:
    settings = Redactor().hide_settings(NESTED)
    assert "hush" not in str(settings)
    assert settings["kv_transfer_config"]["db"] == 3
    line = Redactor().hide_credentials(f"non-default args: {NESTED}")
    assert "hush" not in line
    assert "'kv_connector': 'C'" in line
    assert "'db': 3" in line


PAIRS = {
    "extra": {"env": [{"name": "REDIS_PASSWORD", "value": "hush-1"}, ("token", "hush-2")]},
    "args": ["--redis-pw", "hush-3", "--port", "1"],
}


def test_a_value_that_is_named_beside_it_is_in_no_incident_and_in_no_fact() -> None:
    redactor = Redactor()
    for found in (
        redactor.hide_settings(PAIRS), redactor.hide_texts(PAIRS), redactor.hide_in(PAIRS),
        plain(PAIRS), redactor.hide(str(PAIRS)),
        redactor.hide_credentials(json.dumps(json.dumps(PAIRS))),
    ):  # fmt: skip
        assert "hush" not in str(found)
        assert "REDIS_PASSWORD" in str(found)
    assert redactor.hide_settings(PAIRS)["args"][2:] == ["--port", "1"]


def test_a_working_folder_is_no_secret() -> None:
    assert list_secrets({"PWD": "/srv/models", "DB_PWD": "abc-def"}) == ("abc-def",)


def test_secrets_nested_in_an_engines_arguments_are_in_no_fact() -> None:
    facts = plain(NESTED)
    assert "hush" not in str(facts)
    assert facts["kv_transfer_config"]["db"] == 3
