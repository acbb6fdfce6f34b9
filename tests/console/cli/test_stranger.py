"""Keys and tokens go to the engine that they belong to, and to nobody who has got its port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hostile.busy_engine import BusyEngine
from tests.support.lying_engine import LyingEngine
from tests.support.registered_engine import (
    RegisteredEngine,
    find_port,
    registered_engine,
    stranger,
)

from specdeck.console.cli.attach import AttachOptions, connect, read_attach_block
from specdeck.console.cli.check_context import open_check_context
from specdeck.console.cli.engines import access
from specdeck.console.cli.expectations import open_fingerprints
from specdeck.console.cli.main import outcome
from specdeck.engine.client.engine_client import open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.errors import ConfigError, Unauthorized, Unreachable
from specdeck.engine.launch import ports
from specdeck.engine.operations.check import CheckOptions
from specdeck.engine.paths import locations
from specdeck.engine.protocol.messages import Change

KEY, TOKEN = "the-api-key-of-it", "the-admin-token"
COMMANDS = [
    ["set", "{}", "k=3"],
    ["watch", "{}", "--count", "2", "--interval", "0.05", "--json"],
    ["doctor", "{}"],
    ["check", "{}", "--limit", "1", "--patience", "0"],
    ["fingerprint", "show", "{}"],
    ["sweep", "{}", "--seconds", "1"],
]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    monkeypatch.delenv("SPECDECK_ADMIN_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def engine(home: Path) -> Iterator[RegisteredEngine]:
    with registered_engine(home, token=TOKEN) as engine:
        yield engine


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_who_has_a_dead_engines_port_is_sent_nothing_under_its_name(
    words: list[str], engine: RegisteredEngine, capsys: Captured
) -> None:
    engine.kill()
    with stranger(engine.port) as sent:
        assert outcome([word.format("demo") for word in words]) == 3
    assert "demo has ended" in capsys.readouterr().err
    assert sent == b""


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_who_has_a_dead_engines_port_is_sent_no_secret_under_its_url(
    words: list[str], engine: RegisteredEngine
) -> None:
    engine.kill()
    with stranger(engine.port) as sent:
        outcome([word.format(engine.record.url) for word in words])
    assert b"GET " in sent
    assert KEY.encode() not in sent
    assert TOKEN.encode() not in sent


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("by", ["name", "url"])
def test_a_port_that_a_running_engine_does_not_have_is_sent_nothing(
    words: list[str], by: str, home: Path, capsys: Captured
) -> None:
    port = find_port()
    with registered_engine(home, token=TOKEN, port=port, silent=True) as engine:
        with stranger(port) as sent:
            named = "demo" if by == "name" else engine.record.url
            assert outcome([word.format(named) for word in words]) == 3
        assert "another process than demo listens" in capsys.readouterr().err
        assert sent == b""


@pytest.mark.parametrize("by", ["name", "url"])
async def test_a_session_stops_asking_when_a_stranger_takes_the_port(
    by: str, engine: RegisteredEngine
) -> None:
    client = access("demo" if by == "name" else engine.record.url).client()
    try:
        assert await client.version() == "0.32.0"
        engine.kill()
        with stranger(engine.port) as sent:
            for ask in (client.version(), client.page(), client.put(Change(k=3))):
                with pytest.raises(Unreachable, match="demo has ended"):
                    await ask
    finally:
        await client.close()
    assert sent == b""


async def test_who_takes_the_port_while_a_request_is_connected_is_sent_nothing(
    engine: RegisteredEngine,
) -> None:
    """The engine had its port when it was looked at, and another one accepted the connection."""
    to = access("demo")
    sent: list[bytearray] = []
    with ExitStack() as stack:

        def check_port() -> None:
            to.check_port()
            if not sent:
                engine.kill()
                sent.append(stack.enter_context(stranger(engine.port)))

        client = open_client(to.url, api_key=to.api_key, token=to.token, check_port=check_port)
        with pytest.raises(Unreachable, match="demo has ended"):
            await client.put(Change(k=3))
        await client.close()
    assert sent == [b""]


async def test_a_stranger_at_the_references_port_is_no_reference(engine: RegisteredEngine) -> None:
    """The console's check finds its reference by its URL, and has its key from the start."""
    reference = access("demo")
    with LyingEngine({}, honest=BusyEngine().answer) as serving:
        to = access(serving.url)
        checked = connect(to, control=False)
        context = open_check_context(
            {one.url: one.api_key for one in (to, reference)},
            known=(to, reference),
            reference=reference.url,
        )
        engine.kill()
        arms = context.open_arms(checked, CheckOptions(reference=reference.url))
        with stranger(engine.port) as sent, pytest.raises(Unreachable, match="demo has ended"):
            await arms.__aenter__()
        await checked.close()
    assert sent == b""


async def test_a_known_engine_is_the_same_however_its_address_is_spelt(
    engine: RegisteredEngine,
) -> None:
    known = access("demo", api_key_env="VLLM_API_KEY")
    fingerprints = open_fingerprints(api_key_env="VLLM_API_KEY", known=(known,))
    engine.kill()
    with stranger(engine.port) as sent:
        for name in (known.url, str(engine.port), f"{known.url}/v1"):
            with pytest.raises(Unreachable, match="demo has ended"):
                await fingerprints.fetch(name)
    assert sent == b""


async def test_the_engine_that_is_started_in_its_place_is_asked_with_its_own_token(
    engine: RegisteredEngine, home: Path
) -> None:
    to = access(engine.record.url)
    client = to.client()
    try:
        await client.version()
        engine.kill()
        with pytest.raises(Unreachable, match="demo has ended"):
            await client.version()
        with registered_engine(home, token="another-token", port=engine.port) as heir:
            assert heir.record.url == engine.record.url
            assert await client.version() == "0.32.0"
            assert to.token() == Secret("another-token")
    finally:
        await client.close()


async def test_where_nobody_tells_who_listens_only_what_was_named_is_sent(
    engine: RegisteredEngine, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(ports, "find_listeners", lambda port, address=None: None)
    with pytest.raises(Unauthorized, match="cannot verify that demo listens") as key:
        access("demo").check_port()
    assert "--api-key-env" in key.value.line()
    with pytest.raises(Unauthorized, match="its admin token is not used unasked") as token:
        access("demo", api_key_env="VLLM_API_KEY").token()
    assert "--admin-token-file" in token.value.line()
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", TOKEN)
    to = access("demo", api_key_env="VLLM_API_KEY")
    to.check_port()
    assert to.token() == Secret(TOKEN)
    monkeypatch.delenv("VLLM_API_KEY")
    access("demo").check_port()


def test_load_on_a_dead_engine_is_put_on_nobody_else(engine: RegisteredEngine) -> None:
    engine.kill()
    load = [sys.executable, "-m", "specdeck.engine.launch.owned_load"]
    record = [str(locations(os.environ).engines), "demo", engine.record.url]
    words = ["--no-stdin", "--model", "m", "--api-key-env", "VLLM_API_KEY"]
    with (
        stranger(engine.port) as sent,
        subprocess.Popen([*load, *record, *words], stdout=subprocess.PIPE, text=True) as popen,
    ):
        assert popen.stdout is not None
        counts = (json.loads(line) for line in popen.stdout)
        assert next(count for count in counts if count["failed"])
        popen.terminate()
    assert sent == b""


def test_another_hosts_engine_is_not_looked_for_at_this_hosts_port(
    engine: RegisteredEngine, capsys: Captured
) -> None:
    engine.kill()
    engine.registry.update(replace(engine.record, host="gpu-2"))
    with stranger(engine.port) as sent:
        assert outcome(["set", "demo", "k=3"]) == 3
    assert "demo runs on gpu-2, not here" in capsys.readouterr().err
    assert sent == b""


FOREIGN = ["AWS_SECRET_ACCESS_KEY", "SPECDECK_ADMIN_TOKEN", "SPECDECK_WEBHOOK", "MY_VLLM_API_KEY"]


def attaching(folder: Path, port: int, variable: str) -> str:
    """A config from elsewhere."""
    config = folder / "attach.yaml"
    block = {"url": f"http://127.0.0.1:{port}", "api_key_env": variable}
    config.write_text(json.dumps({"attach": block}))
    return str(config)


@pytest.mark.parametrize("variable", FOREIGN)
def test_a_config_alone_has_no_other_secret_sent_to_where_it_says(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv(variable, "planted-secret-0001")
    with stranger(port := find_port()) as sent:
        config = attaching(tmp_path, port, variable)
        assert outcome(["watch", config, "--count", "1"]) == 2
        with pytest.raises(ConfigError, match=f"does not have {variable} sent"):
            read_attach_block(AttachOptions((config,)))
    assert sent == b""
    said = capsys.readouterr().err
    assert f"give --api-key-env {variable}" in said
    assert "planted-secret" not in said


@pytest.mark.parametrize("variable", ["VLLM_API_KEY", "VLLM_API_KEY_EU", "SPECDECK_EU_API_KEY"])
def test_a_config_names_the_variable_of_an_engines_key(variable: str, tmp_path: Path) -> None:
    config = attaching(tmp_path, 9, variable)
    assert read_attach_block(AttachOptions((config,))).api_key_env == variable


def test_an_operator_has_any_variable_sent(tmp_path: Path) -> None:
    config = attaching(tmp_path, 9, "AWS_SECRET_ACCESS_KEY")
    asked = AttachOptions((config,), api_key_env="AWS_SECRET_ACCESS_KEY")
    assert read_attach_block(asked).api_key_env == "AWS_SECRET_ACCESS_KEY"


@pytest.mark.parametrize("subject", ["demo", "gpu-1", "gpu-1:8000", "gpu-1.example.com", "8000"])
def test_no_file_in_the_working_folder_stands_for_an_engine(
    subject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "cloned"
    work.mkdir()
    monkeypatch.chdir(work)
    Path(subject).write_bytes(Path(attaching(tmp_path, 9, "VLLM_API_KEY")).read_bytes())
    asked = AttachOptions((subject,))
    assert read_attach_block(asked) == asked
    assert read_attach_block(AttachOptions((f"./{subject}",))).api_key_env == "VLLM_API_KEY"


def test_whoever_means_a_file_is_told_how_to_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deck").write_text("attach: {url: http://127.0.0.1:9}\n")
    assert outcome(["doctor", "deck"]) == 2
    said = capsys.readouterr().err
    assert "no engine called deck: see `specdeck ps`, or give ./deck for the file" in said
