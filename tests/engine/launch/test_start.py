"""A start, with a script in the engine's place."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from specdeck.engine.config.loader import load
from specdeck.engine.errors import EngineError, UsageError
from specdeck.engine.launch.launcher import Launch
from specdeck.engine.launch.registry import Registry, private_file
from specdeck.engine.launch.stop import stop_engine
from specdeck.engine.paths import locations


async def yes(_: str) -> bool:
    """Somebody answers at every URL."""
    return True


async def no(_: str) -> bool:
    """Nobody answers yet."""
    return False


@pytest.fixture
async def launch(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Launch]:
    """The start of an engine that never listens; a parameter says who answers at its URL."""
    script = tmp_path / "engine"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o700)
    (tmp_path / "a.yaml").write_text("model: some/model\n")
    made = Launch(
        load(tmp_path / "a.yaml", accepted=frozenset({"model"})),
        locations=locations({"SPECDECK_HOME": str(tmp_path)}),
        answers=getattr(request, "param", yes),
        environment=dict(os.environ),
        port="auto",
        python=str(script),
    )
    yield made
    await made.stop(grace_s=0.0)
    made.exit_code()  # the process object learns of its end


async def test_an_answer_of_another_process_does_not_make_an_engine_ready(launch: Launch) -> None:
    port = int(launch.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        stages = []
        async with aclosing(launch.progress()) as moments:  # type: ignore[type-var]  # a generator
            async for moment in moments:
                stages.append(moment.stage)
                if len(stages) == 4:
                    break
    assert stages == ["environment", "process", "process", "process"]
    assert launch.record is not None
    assert launch.record.ready is None


_QUOTES = """#!/bin/sh
echo 'Traceback (most recent call last):'
echo '  File "a.py", line 3, in connect'
token=$(cat "$SPECDECK_ADMIN_TOKEN_FILE")
echo "ConnectionError: no upstream for $token $VLLM_API_KEY $DB_PASSWORD"
exit 1
"""


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_secrets_that_an_engine_quotes_are_not_repeated(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"VLLM_API_KEY": "correct-horse", "DB_PASSWORD": "battery-staple"}
    monkeypatch.setattr(launch, "_environment", {**os.environ, **given})
    (tmp_path / "engine").write_text(_QUOTES)
    seen = [moment async for moment in launch.progress()]
    assert seen[-1].failed == "ConnectionError: no upstream for *** *** ***"
    assert launch.record is not None
    log = await asyncio.to_thread(Path(launch.record.log).read_text)
    assert all(secret in log for secret in given.values())
    shown = " ".join((*seen[-1].log, str(launch.failure()), str(launch.exit_error())))
    assert "no upstream for *** *** ***" in shown
    assert not [word for line in log.splitlines()[2:] for word in line.split()[4:] if word in shown]


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_an_engine_whose_record_cannot_be_written_is_ready_all_the_same(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(launch.progress()) as moments:  # type: ignore[type-var]  # a generator
        async for _ in moments:
            if launch.record is not None:
                break
    record = launch.record
    assert record is not None
    assert launch._note_ready(record) is None

    def fail(_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(launch._registry, "update", fail)
    assert launch._note_ready(record) == "its record cannot be written: no space left on device"
    assert launch.is_listed

    def wait(_: object) -> bool:
        raise EngineError("another specdeck has held the records")

    monkeypatch.setattr(launch._registry, "update", wait)
    assert launch._note_ready(record) == "another specdeck has held the records"
    assert launch.is_listed
    monkeypatch.undo()
    launch._registry.remove(record)
    assert launch._note_ready(record) == "its record is gone"
    assert not launch.is_listed


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_the_port_of_an_engine_that_is_starting_is_refused(
    launch: Launch, tmp_path: Path
) -> None:
    async with aclosing(launch.progress()) as moments:  # type: ignore[type-var]  # a generator
        async for _ in moments:
            if launch.record is not None:
                break
    with pytest.raises(UsageError, match="is starting"):
        Launch(
            launch.config,
            locations=locations({"SPECDECK_HOME": str(tmp_path)}),
            answers=yes,
            port=int(launch.url.rpartition(":")[2]),
        )


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_an_engine_that_was_killed_says_how_it_ended(launch: Launch) -> None:
    async for moment in launch.progress():
        if moment.stage == "process" and moment.failed is None and launch.record is not None:
            assert launch.exit_error() is None
            os.kill(launch.record.leader.pid, signal.SIGKILL)
    end = launch.exit_error()
    assert "the engine ended: it was killed by SIGKILL" in str(end)
    assert launch.exit_error() is end


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_a_start_that_somebody_stopped_says_so(launch: Launch, tmp_path: Path) -> None:
    elsewhere = Registry(locations({"SPECDECK_HOME": str(tmp_path)}).engines)
    stopping: asyncio.Task[None] | None = None
    async for _ in launch.progress():
        if launch.record is not None and stopping is None:
            stopping = asyncio.create_task(stop_engine(launch.record, elsewhere, grace_s=-1.0))
    assert stopping is not None
    await stopping
    assert str(launch.failure()).endswith(", or somebody ran `specdeck stop` elsewhere")


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_arguments_with_a_secret_lie_in_a_file_for_their_owner_until_it_stops(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("model: some/model\nadditional_config: {password: hush}\n")
    accepted = frozenset({"model", "additional_config"})
    launch.config = load(tmp_path / "a.yaml", accepted=accepted)
    async with aclosing(launch.progress()) as moments:  # type: ignore[type-var]  # a generator
        async for moment in moments:
            if moment.stage == "process" and launch.record is not None:
                break
    assert launch.record is not None
    file = private_file(launch.token_file)
    assert "hush" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    await launch.stop(grace_s=0.0)
    assert not file.exists()


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_a_record_says_which_arguments_the_engine_was_started_with(launch: Launch) -> None:
    async with aclosing(launch.progress()) as moments:  # type: ignore[type-var]  # a generator
        async for _ in moments:
            if launch.record is not None:
                break
    assert launch.record is not None
    assert launch.record.arguments == launch.config.arguments_digest


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_another_start_of_a_config_has_its_own_name_and_knows_the_first(
    launch: Launch, tmp_path: Path
) -> None:
    assert (launch.name, launch.others) == ("model", ())
    async with aclosing(launch.progress()) as moments:  # type: ignore[type-var]  # a generator
        async for _ in moments:
            if launch.record is not None:
                break
    folders = locations({"SPECDECK_HOME": str(tmp_path)})
    second = Launch(launch.config, locations=folders, answers=no, port="auto")
    assert (second.name, second.others) == ("model-2", (launch.record,))
    await launch.stop(grace_s=0.0)
    launch.exit_code()  # the process object learns of its end
    third = Launch(launch.config, locations=folders, answers=no, port="auto")
    assert (third.name, third.others) == ("model", ())


@pytest.mark.parametrize("launch", [no], indirect=True)
async def test_a_start_is_called_what_its_record_is_though_another_took_the_name(
    launch: Launch, tmp_path: Path
) -> None:
    other = Launch(
        launch.config,
        locations=locations({"SPECDECK_HOME": str(tmp_path)}),
        answers=no,
        environment=dict(os.environ),
        port="auto",
        python=str(tmp_path / "engine"),
    )
    assert (launch.name, other.name) == ("model", "model")
    for one in (other, launch):
        async with aclosing(one.progress()) as moments:  # type: ignore[type-var]  # a generator
            async for _ in moments:
                if one.record is not None:
                    break
    assert (other.name, launch.name) == ("model", "model-2")
    await other.stop(grace_s=0.0)
    other.exit_code()
