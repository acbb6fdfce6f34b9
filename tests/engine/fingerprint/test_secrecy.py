"""No credential within a value is shown, and no setting is withheld."""

import json
import time

import pytest

from specdeck.engine.fingerprint.secrecy import contains_secret, find_secrets, redact
from specdeck.engine.fingerprint.sources import numeric_variables


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
        ("cacheuser:s3cr3t@cache:6379", "***@cache:6379"),
        ("endpoint='u:s3cr3t/a@cache', k=5", "endpoint='***@cache', k=5"),
        ("redis://cache:6379?pw=s3cr3t", "redis://cache:6379?pw=***"),
        ("https://h/x?se=1&sig=s3cr3t", "https://h/x?se=1&sig=***"),
        ("os.environ['HF_TOKEN'] = 's3cr3t'", "os.environ['HF_TOKEN'] = '***'"),
        ("password: !!str s3cr3t", "password: ***"),
        ("password: !<tag:yaml.org,2002:str> &pw s3cr3t", "password: ***"),
        ("password: &pw\n# c\n  s3cr3t\nk: 5", "password: ***\nk: 5"),
        ("password:\n# c\n  s3cr3t\n# d\nk: 5", "password:\n***\n# d\nk: 5"),
        ("x: {password: &pw s3cr3t, k: 5}", "x: {password: ***, k: 5}"),
        ("password: !!str &pw |\n  s3cr3t\nk: 5", "password: ***\nk: 5"),
        ("password: !s3cr3t and\nk: 5", "password: ***\nk: 5"),
        ("AccountName=a;AccountKey=s3cr3t==;k=5", "AccountName=a;AccountKey=***;k=5"),
    ],
)
def test_a_credential_within_a_value_is_not_shown(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("http://cache:8000/a@b", "s3://bucket/model", "tcp://127.0.0.1:5555", "user@host"),
        *("vllm.config.CompilationConfig", "max_tokens=5,tokens_per_block: 16", "", "FLASH_ATTN"),
        *("vllm/vllm-openai:v0.32@sha256:0a1b", "git@github.com:org/x.git", "mailto:ann@host"),
        *("cuda:0@host", "registry:5000/image@tag", "['key', 'value']", "('key', 'value')"),
        *("{'name': 'port', 'value': 5}", "redis://***@cache", "<max_tokens>5</max_tokens>"),
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'"{\"password\": \"s3cr3t\", \"k\": 5}"', r'"{\"password\": \"***\", \"k\": 5}"'),
        (r'{\\\"password\\\": \\\"s\\\\\\\"3cr3t\\\"}', r'{\\\"password\\\": \\\"***\\\"}'),
        ("{'password': b's3cr3t', 'k': 5}", "{'password': b'***', 'k': 5}"),
        ("password=SecretStr('s3cr3t'), k=5", "password=***, k=5"),
        ("password => s3cr3t", "password => ***"),
        ("password->s3cr3t", "password->***"),
        ("password\uff1as3cr3t", "password\uff1a***"),
        ("<a:password x='1'>s3cr3t</a:password>", "<a:password x='1'>***</a:password>"),
        ("<name>s3.secret</name><value>s3cr3t</value>", "<name>s3.secret</name><value>***</value>"),
        ("[('password', 's3cr3t'), ('a', 'b')]", "[('password', '***'), ('a', 'b')]"),
        ("(b'authorization', b'Bearer s3cr3t')", "(b'authorization', b'***')"),
        ("['--redis-pw', 's3cr3t', '--port', '1']", "['--redis-pw', '***', '--port', '1']"),
        ("password: |\n  s3cr3t\n\n  s3cr3t\nk: 5", "password: ***\nk: 5"),
        ("- password: >-\n    s3cr3t\n  k: 5", "- password: ***\n  k: 5"),
        ("passwords:\n- s3cr3t\n- s3cr3t\nk: 5", "passwords:\n***\nk: 5"),
        (r"'password: |\n  s3cr3t s3cr3t\nk: 5'", r"'password: ***\nk: 5'"),
        ("{name: REDIS_PASSWORD, value: s3cr3t}", "{name: REDIS_PASSWORD, value: ***}"),
        ("- value: s3cr3t\n  name: DB_PW\n", "- value: ***\n  name: DB_PW\n"),
        ("{'value': 5, 'name': 'a'}, {'name': 'DB_PW', 'value': 's3cr3t'}",
         "{'value': 5, 'name': 'a'}, {'name': 'DB_PW', 'value': '***'}"),
    ],
)  # fmt: skip
def test_a_credential_is_found_in_every_notation(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "value",
    [
        {"redis_pw": "s3cr3t"}, [{"name": "REDIS_PASSWORD", "value": "s3cr3t"}],
        {"value": "s3cr3t", "key": "db.password"}, ["--redis-pw", "s3cr3t"], [["token", "s3cr3t"]],
        json.dumps({"a": [{"pw": "s3cr3t"}]}), json.dumps(json.dumps({"pw": "s3cr3t"})),
        {"redis://u:s3cr3t@cache": 1}, "u:s3cr3t@cache:6379", json.dumps({"pw": ["s3cr3t"]}),
        "pw=SecretStr('s3cr3t')", "http://h?pw=s%33cr3t",
    ],
)  # fmt: skip
def test_the_credentials_of_an_argument_are_found_as_themselves(value: object) -> None:
    assert contains_secret("extra", value)
    assert "s3cr3t" in list(find_secrets("extra", value))


def test_a_credential_is_found_behind_its_type_and_anchor() -> None:
    assert "s3cr3t" in list(find_secrets("extra", "password: !!str &pw s3cr3t"))


@pytest.mark.parametrize(
    "value",
    [
        {"name": "port", "value": "5"}, ["key", "value"], {"packed": ["query", "key", "value"]},
        ["--port", "5"], ["--api-key", "--port"], {"pass_config": {"fuse": True}}, "pw=***",
        [{"name": "REDIS_PASSWORD", "value": None}, {"name": "a", "value": "5"}],
    ],
)  # fmt: skip
def test_an_argument_without_one_has_none(value: object) -> None:
    assert not contains_secret("extra", value)


@pytest.mark.parametrize(
    "piece",
    [
        "value:", "value:name:token ", "value: {name: token ", "token:\n ", "token:\\n ", "\\",
        "value:\\\"", "('token','", "['--token',", "=:", "=:'", "a:b@", "<a", "<token>", "token=<",
        "token=a(", "token->", "-\u200b", "password: |\n  a\n", "(   ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "@", "'", " :x@sha256:"])
def test_no_text_takes_longer_than_it_is_long(piece: str, end: str) -> None:
    began = time.process_time()
    redact((piece * 200_000)[:200_000] + end)
    assert time.process_time() - began < 4


@pytest.mark.parametrize(
    ("before", "piece", "end"),
    [
        ("</", "a", ""), ("<", "a", "</"), ("</a ", "b", ""), ("('password', 'x'", " ", "z"),
        ("('password', 'x", "\\", "z"), (r"password=\"", "\\", "z"), ("password=[", "'a',", ""),
    ],
)  # fmt: skip
def test_what_is_long_behind_what_begins_something_is_read_once(
    before: str, piece: str, end: str
) -> None:
    began = time.process_time()
    redact(before + (piece * 60_000)[:60_000] + end)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("name", ["password=", "password: ", "password: |"])
def test_blanks_behind_a_name_take_no_time(name: str) -> None:
    """A client may have an engine log them, whose one thread is held meanwhile."""
    began = time.process_time()
    assert "planted" not in redact(f"{name}{' ' * 20_000}\n  sk-planted {' ' * 20_000}")
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    "unit", ["password: #", "password: |", "password=[", "password:\t", "\n# pw=", "\\n# pw="]
)
def test_names_one_after_the_other_take_no_time(unit: str) -> None:
    began = time.process_time()
    assert "planted" not in redact(f"{unit * 6_000}\npassword=sk-planted")
    assert time.process_time() - began < 5.0


def test_a_comment_before_a_value_in_the_line_below_is_passed_over() -> None:
    assert redact(f"password: # {'x' * 900}\n  sk-planted\nk: 5") == (
        f"password: # {'x' * 900}\n  ***\nk: 5"
    )
