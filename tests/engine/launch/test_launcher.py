"""The process of an engine, with a small script in the engine's place."""

import errno
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from specdeck.engine.errors import EngineError, StartFailed, UsageError
from specdeck.engine.launch import process
from specdeck.engine.launch.launcher import (
    KEPT_LOGS,
    Command,
    StartedEngine,
    choose_port,
    start,
    token_path,
)
from specdeck.engine.launch.ports import find_free
from specdeck.engine.launch.registry import Registry
from specdeck.engine.launch.stop import Stopping, stop_engine
from specdeck.engine.paths import Locations, locations

WORKER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
"""Ignores a polite request, as an engine core in the middle of something does."""

SERVER = f"""
import signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", {WORKER!r}], stdout=subprocess.PIPE)
print("worker", worker.pid, flush=True)
"""

DEAF = """
import subprocess, sys, time
worker = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True);"
subprocess.Popen([sys.executable, "-c", worker + "import time; time.sleep(600)"])
"""


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    return locations({"SPECDECK_HOME": str(tmp_path)})


@pytest.fixture
def registry(places: Locations) -> Registry:
    return Registry(places.engines)


Begin = Callable[[str], StartedEngine]


@pytest.fixture
def begin(places: Locations, registry: Registry) -> Iterator[Begin]:
    """Starts a script as if it were an engine; whatever is left is ended after the test."""
    made: list[StartedEngine] = []

    def started(script: str) -> StartedEngine:
        command = Command(
            argv=[sys.executable, "-c", textwrap.dedent(script)],
            environment=dict(os.environ),
            name="demo",
            url=f"http://127.0.0.1:{find_free('127.0.0.1')}",
            token_file=token_path(places),
        )
        made.append(start(command, registry=registry, locations=places))
        return made[-1]

    yield started
    for one in made:
        for member in process.members(one.record.leader):
            process.send(member, signal.SIGKILL)
        one.popen.wait()


def until(true: Callable[[], bool]) -> None:
    """Waits for another process; fails when nothing comes."""
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exists(path: str) -> bool:
    """Whether the file is still there."""
    return Path(path).exists()


def said(started: StartedEngine, text: str) -> None:
    """Waits for the stand-in's word in its log, so that the test need not guess."""
    until(lambda: text in log_of(started))


def log_of(started: StartedEngine) -> str:
    return Path(started.record.log).read_text()


def test_an_engine_is_registered_and_leads_a_session_of_its_own(
    begin: Begin, registry: Registry
) -> None:
    one = begin("import time; print('up', flush=True); time.sleep(600)")
    said(one, "up")
    assert registry.find("demo") == one.record
    assert one.record.life() == "running"
    assert os.getsid(one.record.pid) == one.record.pid
    assert os.readlink(f"/proc/{one.record.pid}/fd/0") == os.devnull


def test_secrets_and_logs_are_for_their_owner_only(begin: Begin) -> None:
    one = begin("import time; time.sleep(600)")
    for path in (Path(one.record.token_file), Path(one.record.log)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(Path(one.record.token_file).read_text()) >= 32


def test_the_same_engine_twice_has_two_names(begin: Begin, registry: Registry) -> None:
    names = {begin("import time; time.sleep(600)").record.name for _ in range(2)}
    assert names == {"demo", "demo-2"}


async def test_an_orderly_engine_ends_at_once_and_is_forgotten(
    begin: Begin, registry: Registry
) -> None:
    one = begin("import time; print('up', flush=True); time.sleep(600)")
    said(one, "up")
    steps: list[Stopping] = []
    await stop_engine(one.record, registry, every=0.01, on_progress=steps.append)
    assert steps[-1].left == 0
    assert not steps[-1].killed
    assert registry.all() == ()
    assert not exists(one.record.token_file)
    assert exists(one.record.log)


async def test_a_worker_that_will_not_go_is_killed_with_its_server(
    begin: Begin, registry: Registry
) -> None:
    one = begin(SERVER + "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    said(one, "worker")
    assert len(process.members(one.record.leader)) == 2
    steps: list[Stopping] = []
    await stop_engine(one.record, registry, grace_s=0.2, every=0.01, on_progress=steps.append)
    assert steps[-1].killed
    assert process.members(one.record.leader) == ()


HOLDER = """
import signal, time
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = SharedMemory(create=True, size=4096)
print("held", held.name, flush=True)
time.sleep(600)
"""


async def test_shared_memory_of_killed_processes_is_given_back(
    begin: Begin, registry: Registry
) -> None:
    one = begin(HOLDER)
    said(one, "held")
    held = f"/dev/shm/{log_of(one).split('held ')[1].split()[0]}"
    assert exists(held)
    steps: list[Stopping] = []
    await stop_engine(one.record, registry, grace_s=0.2, every=0.01, on_progress=steps.append)
    assert steps[-1].killed
    assert process.members(one.record.leader) == ()
    assert not exists(held)


async def test_orphans_of_a_dead_server_are_found_and_ended(
    begin: Begin, registry: Registry
) -> None:
    one = begin(SERVER + "time.sleep(600)")
    said(one, "worker")
    os.kill(one.record.pid, signal.SIGKILL)
    one.popen.wait()
    assert one.record.life() == "orphans"
    assert registry.clean() == (one.record,)
    await stop_engine(one.record, registry, grace_s=0.2, every=0.01)
    assert one.record.life() == "gone"
    assert registry.all() == ()


async def test_orphans_are_not_waited_for_as_a_server_is(begin: Begin, registry: Registry) -> None:
    one = begin(DEAF + "time.sleep(600)")
    said(one, "deaf")
    os.kill(one.record.pid, signal.SIGKILL)
    one.popen.wait()
    moments: list[Stopping] = []
    ticks = count()

    async def no_sleep(_: float) -> None:
        """The clock goes on by itself."""

    await stop_engine(
        one.record,
        registry,
        on_progress=moments.append,
        clock=lambda: next(ticks) / 100,
        sleep=no_sleep,
    )
    assert moments[-1].killed
    assert 1.9 < max(m.elapsed for m in moments if not m.killed) < 2.2


async def test_a_stopped_engine_can_be_ended(begin: Begin, registry: Registry) -> None:
    one = begin("import time; print('up', flush=True); time.sleep(600)")
    said(one, "up")
    os.kill(one.record.pid, signal.SIGSTOP)
    steps: list[Stopping] = []
    await stop_engine(one.record, registry, every=0.01, on_progress=steps.append)
    assert not steps[-1].killed


async def test_ending_an_engine_touches_no_other(begin: Begin, registry: Registry) -> None:
    one, other = (begin("import time; time.sleep(600)") for _ in range(2))
    await stop_engine(one.record, registry, grace_s=0.2, every=0.01)
    assert other.record.life() == "running"
    assert registry.all() == (other.record,)


def refuse_signals_to(refused: set[int], patch: pytest.MonkeyPatch) -> None:
    """Has the system not let us signal some processes, as it does with another user's."""
    send = os.kill

    def kill(pid: int, number: int) -> None:
        if pid in refused:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        send(pid, number)

    patch.setattr("specdeck.engine.launch.process.os.kill", kill)


async def test_an_engine_of_another_user_is_not_ended_and_its_owner_is_named(
    begin: Begin, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = begin("import time; time.sleep(600)").record
    owner = pwd.getpwuid(os.getuid()).pw_name
    with monkeypatch.context() as patch:
        refuse_signals_to({engine.pid}, patch)
        with pytest.raises(EngineError, match=f"not permitted .* {engine.pid}, which is {owner}'s"):
            await stop_engine(engine, registry)
    assert registry.records() == (engine,)
    assert process.leads(engine.leader)


async def test_what_may_be_ended_of_an_engine_is_ended(
    begin: Begin, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = begin(SERVER + "time.sleep(600)").record
    until(lambda: len(process.members(engine.leader)) == 2)
    worker = process.members(engine.leader)[1]
    with monkeypatch.context() as patch:
        refuse_signals_to({worker.pid}, patch)
        with pytest.raises(EngineError, match=f"not permitted to signal process {worker.pid}"):
            await stop_engine(engine, registry, grace_s=0.0)
    assert process.members(engine.leader) == (worker,)
    assert registry.records() == (engine,)


async def test_ending_an_engine_that_is_gone_only_forgets_it(
    begin: Begin, registry: Registry
) -> None:
    one = begin("pass")
    one.popen.wait()
    await stop_engine(one.record, registry, every=0.01)
    assert registry.all() == ()


CONSOLE = """
import os, signal, sys
from pathlib import Path
from specdeck.engine.launch import launcher
from specdeck.engine.launch.registry import Registry
from specdeck.engine.paths import locations

places = locations(os.environ)
class Killed(Registry):
    def add(self, record, **how):
        if sys.argv[1] == "before":
            print(record.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().add(record, **how)
command = launcher.Command(
    argv=[sys.executable, "-c", "import time; time.sleep(600)"], environment=dict(os.environ),
    name="demo", url="http://127.0.0.1:1", token_file=launcher.token_path(places))
started = launcher.start(command, registry=Killed(places.engines), locations=places)
print(started.record.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_console(home: Path, when: str) -> int:
    """Runs a console that is killed before or after it registers; returns the engine's pid."""
    done = subprocess.run(
        [sys.executable, "-c", CONSOLE, when],
        env={**os.environ, "SPECDECK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return int(done.stdout)


def test_a_console_killed_before_it_registers_leaves_no_engine(
    tmp_path: Path, registry: Registry
) -> None:
    pid = killed_console(tmp_path, "before")
    until(lambda: (found := process.find_process(pid)) is None or found.zombie)
    assert registry.all() == ()


async def test_an_engine_outlives_its_killed_console_and_is_found(
    tmp_path: Path, registry: Registry
) -> None:
    pid = killed_console(tmp_path, "after")
    found = registry.find("demo")
    assert found is not None
    assert found.pid == pid
    assert found.life() == "running"
    await stop_engine(found, registry, every=0.01)
    assert process.members(found.leader) == ()


def test_an_engine_that_cannot_be_made_leaves_no_token(
    places: Locations, registry: Registry
) -> None:
    token = token_path(places)
    command = Command(["x"], {"A": "\ud800"}, "demo", "http://127.0.0.1:1", token)
    huge = Command(["x" * (1 << 22)], {}, "demo", "http://127.0.0.1:1", token, private="a: b")
    with pytest.raises((StartFailed, UnicodeEncodeError)):
        start(command, registry=registry, locations=places)
    with pytest.raises(StartFailed, match="cannot be started"):
        start(huge, registry=registry, locations=places)
    assert not token.exists()
    assert not list(token.parent.iterdir())
    assert registry.all() == ()


def test_the_admin_token_is_in_no_text_of_a_command(places: Locations) -> None:
    command = Command(
        ["x"], {"KEY": "secret"}, "demo", "http://127.0.0.1:1", token_path(places), private="secret"
    )
    assert "secret" not in repr(command)


def test_what_cannot_be_removed_among_the_logs_keeps_no_engine_from_starting(
    begin: Begin, places: Locations
) -> None:
    places.logs.mkdir(parents=True, mode=0o700)
    (places.logs / "0-old.log").mkdir()
    for n in range(KEPT_LOGS):
        (places.logs / f"1-old-{n:04}.log").touch()
    assert begin("import time; time.sleep(600)").record.name == "demo"
    assert (places.logs / "0-old.log").is_dir()
    assert not (places.logs / "1-old-0000.log").exists()


def test_a_port_is_free_until_somebody_listens(registry: Registry) -> None:
    port = choose_port("127.0.0.1", "auto", registry)
    assert choose_port("127.0.0.1", port, registry) == port
    taken = pytest.raises(UsageError, match=rf"port {port}: .*in use, by .*pid {os.getpid()}")
    with socket.create_server(("127.0.0.1", port)), taken:
        choose_port("127.0.0.1", port, registry)


def test_two_engines_do_not_get_one_port(
    begin: Begin, places: Locations, registry: Registry
) -> None:
    one = begin("import time; time.sleep(600)").record
    assert one.port is not None
    with pytest.raises(UsageError, match=f"port {one.port} is demo's, which is starting"):
        choose_port("127.0.0.1", one.port, registry)
    # Both had asked for the port before either was registered.
    token = token_path(places)
    second = Command([sys.executable, "-c", ""], dict(os.environ), "second", one.url, token)
    with pytest.raises(UsageError, match=f"port {one.port} is demo's"):
        start(second, registry=registry, locations=places)
    assert registry.records() == (one,)
    assert not token.exists()
    assert [path.name for path in places.logs.glob("*second*")] == []
