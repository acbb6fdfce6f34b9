import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest
from tests.support.http_engine import serve
from tests.support.lying_engine import EVENT_STREAM, Lie, LyingEngine, endless, event, reply

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.demo.load import (
    Load,
    find_model,
    follow,
    main,
    print_line,
    report,
    run,
    tokens,
)
from specdeck.engine.demo.profiles import PROFILES, ask
from specdeck.engine.errors import EngineError, NotAnEngine, Unreachable

COMMAND = [sys.executable, "-m", "specdeck.engine.demo.load"]
Handler = Callable[[httpx.Request], httpx.Response]


def events(*counts: int, end: str = "[DONE]") -> str:
    lines = [json.dumps({"usage": {"completion_tokens": count}}) for count in counts]
    return "".join(f"data: {line}\n\n" for line in [*lines, end])


def engine(respond: Handler) -> httpx.AsyncClient:
    async def respond_in_turn(request: httpx.Request) -> httpx.Response:
        await moment()  # a network lets other tasks run; without it one stream would run for ever
        return respond(request)

    transport = httpx.MockTransport(respond_in_turn)
    return httpx.AsyncClient(transport=transport, base_url="http://engine")


def answer(request: httpx.Request) -> httpx.Response:
    if request.url.path == "/v1/models":
        return httpx.Response(200, json={"data": [{"id": "demo"}]})
    return httpx.Response(200, text=events(3, 7))


async def moment(_: float = 0.0) -> None:
    await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await moment()


@contextlib.asynccontextmanager
async def running(load: Load, client: httpx.AsyncClient) -> AsyncIterator[None]:
    task = asyncio.create_task(run(load, client, sleep=moment))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_answers_and_their_tokens_are_counted() -> None:
    load = Load(PROFILES["predictable"], streams=2)
    async with engine(answer) as client, running(load, client):
        await until(lambda: load.requests >= 5)
    assert load.tokens >= 7 * 5
    assert load.failed == 0
    assert load.model == "demo"


async def test_the_load_goes_on_when_the_engine_is_back() -> None:
    seen = 0

    def flaky(request: httpx.Request) -> httpx.Response:
        nonlocal seen
        seen += 1
        if seen < 4:
            raise httpx.ConnectError("refused")
        if seen < 8:
            return httpx.Response(503)
        return answer(request)

    load = Load(PROFILES["predictable"], streams=2)
    async with engine(flaky) as client, running(load, client):
        await until(lambda: load.requests >= 3)
    assert load.failed == 7


async def test_an_engine_that_is_away_is_asked_ever_less_often() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await moment()

    def gone(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with engine(gone) as client:
        task = asyncio.create_task(run(Load(PROFILES["hard"], 1), client, sleep=sleep))
        await until(lambda: waits.count(5.0) > 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    pauses = [seconds for seconds in waits if seconds != 0.2]
    assert pauses[:6] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0]


async def test_a_switch_changes_what_is_asked() -> None:
    prompts: list[str] = []

    def note(request: httpx.Request) -> httpx.Response:
        prompts.append(json.loads(request.content)["prompt"])
        return answer(request)

    load = Load(PROFILES["predictable"], streams=1, model="demo")
    async with engine(note) as client, running(load, client):
        await until(lambda: len(prompts) > 3)
        assert prompts[0] == ask("predictable", 0, 0).prompt
        before = len(prompts)
        follow(load, "hard\n")
        await until(lambda: len(prompts) > before + 3)
    asked = {ask("hard", 0, number).prompt for number in range(len(prompts))}
    assert prompts[-1] in asked


async def test_streams_follow_the_phases() -> None:
    now, open_now, most = 0.0, 0, 0
    gate = asyncio.Event()

    async def held(request: httpx.Request) -> httpx.Response:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await gate.wait()
        await moment()
        open_now -= 1
        return answer(request)

    load = Load(PROFILES["burst"], streams=3, model="demo", clock=lambda: now)
    client = httpx.AsyncClient(transport=httpx.MockTransport(held), base_url="http://engine")
    async with client, running(load, client):
        await until(lambda: open_now == 1)
        now = 46.0
        await until(lambda: open_now == 16)
        now = 1.0
        gate.set()
        await until(lambda: open_now <= 1)
        most = 0
        done = load.requests
        await until(lambda: load.requests > done + 3)
    assert most == 1


def test_an_unknown_profile_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    load = Load(PROFILES["hard"], streams=1)
    follow(load, "nonsense")
    follow(load, "")
    assert load.profile.name == "hard"
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (events(3, end=""), Unreachable),
        (events(3, end='{"error": {"message": "engine died"}}'), EngineError),
        (events(3, end="{half"), NotAnEngine),
        (events(3, end="7"), NotAnEngine),
        ("<html>", Unreachable),
    ],
)
async def test_an_answer_that_breaks_off_is_a_failure(text: str, error: type[EngineError]) -> None:
    async with engine(lambda _: httpx.Response(200, text=text)) as client:
        with pytest.raises(error):
            async for _ in tokens(client, {"max_tokens": 8}):
                pass


async def test_tls_that_breaks_is_a_failure() -> None:
    def broken(_: httpx.Request) -> httpx.Response:
        raise ssl.SSLError(1, "[SSL: X] bad record mac")

    async with engine(broken) as client:
        with pytest.raises(Unreachable, match="bad record mac"):
            async for _ in tokens(client, {"max_tokens": 8}):
                pass


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (endless(EVENT_STREAM, event({"choices": []}) * 1000), "more than 1032 events"),
        (endless(EVENT_STREAM + b"data: ", b"x" * 9999), "without an end"),
        (EVENT_STREAM + event(b"[" * 9999), "not JSON"),
        (EVENT_STREAM + event({"choices": [1]}), "closed the connection"),
        (reply(b"x", ("Content-Encoding", "gzip")), "compresses"),
    ],
)
async def test_an_answer_that_lies_is_a_failure(lie: Lie, words: str) -> None:
    with LyingEngine({"/v1/completions": lie}) as liar:
        async with httpx.AsyncClient(base_url=liar.url) as client:
            found = tokens(client, {"max_tokens": 8})
            with pytest.raises(EngineError, match=words):
                assert not any([each async for each in found])


@pytest.mark.parametrize("body", [{"data": []}, {"data": {"id": "a"}}, [], {"data": [{"id": 1}]}])
async def test_models_that_are_none_are_a_failure(body: object) -> None:
    async with engine(lambda _: httpx.Response(200, json=body)) as client:
        with pytest.raises(EngineError):
            await find_model(EngineClient(client, url=str(client.base_url)))


async def test_a_line_each_second_tells_the_counts() -> None:
    lines: list[str] = []
    task = asyncio.create_task(
        report(Load(PROFILES["mixed"], streams=4), write=lines.append, sleep=moment)
    )
    await until(lambda: len(lines) > 1)
    task.cancel()
    keys = ["t", "profile", "streams", "requests", "failed", "tokens"]
    assert list(json.loads(lines[0])) == keys


def test_a_key_that_is_not_set_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["http://127.0.0.1:1", "--api-key-env", "SPECDECK_NO_SUCH_KEY"]) == 2
    assert "SPECDECK_NO_SUCH_KEY" in capsys.readouterr().err


@pytest.fixture
def url() -> Iterator[str]:
    """An engine of its own process boundary, for the load as a process; it has a key."""

    def respond(request: httpx.Request) -> httpx.Response:
        known = request.headers.get("Authorization") == "Bearer k"
        return answer(request) if known else httpx.Response(401)

    with serve(respond) as url:
        yield url


@pytest.fixture
def process(url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*COMMAND, url, "--streams", "2", "--api-key-env", "KEY", *more],
            text=True,
            env=os.environ | {"KEY": "k"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def test_the_process_switches_on_a_line_and_ends_with_its_stdin(
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    child = process()
    assert child.stdin is not None
    assert child.stdout is not None
    first = json.loads(child.stdout.readline())
    assert (first["profile"], first["failed"]) == ("predictable", 0)
    assert first["tokens"] > 0
    child.stdin.write("mixed\n")
    child.stdin.flush()
    names = (json.loads(line)["profile"] for line in child.stdout)
    assert "mixed" in [next(names) for _ in range(2)]
    _, talk = child.communicate(timeout=20)
    assert (child.returncode, talk) == (0, "")


def test_the_process_goes_on_without_a_reader_until_it_is_told(
    process: Callable[..., subprocess.Popen[str]],
) -> None:
    child = process("--no-stdin")
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(2.5)
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0
    assert child.stderr is not None
    assert child.stderr.read() == ""


def test_counts_that_nobody_takes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    rescue = threading.Timer(5, lambda: os.read(reading, 1_000_000))
    rescue.start()
    began = time.monotonic()
    with open(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        for _ in range(2_000):
            print_line("counts " * 14)
        assert time.monotonic() - began < 4
    rescue.cancel()
    os.close(reading)
