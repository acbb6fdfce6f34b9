"""Samples of an engine that was started here, with a small server in its place."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx
import pytest
from tests.support.http_engine import HttpEngine, serve
from tests.support.pages import recorded_page

from specdeck.console.cli.run import (
    describe_others,
    how_to_end,
    log_running,
    log_unrecorded,
    print_samples,
)
from specdeck.engine.errors import StartFailed, Unauthorized
from specdeck.engine.launch.launcher import Launch
from specdeck.engine.launch.registry import Record
from specdeck.engine.protocol.messages import PREFIX

KEY = "Bearer the-key"


@pytest.fixture
def url() -> Iterator[str]:
    """vLLM without the plugin, behind an API key as vLLM has it: the metrics are open."""

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith(PREFIX) and request.headers.get("Authorization") != KEY:
            return httpx.Response(401, json={})
        return engine(request)

    engine = HttpEngine({"/metrics": (200, recorded_page("speculative"))})
    with serve(respond) as url:
        yield url


@dataclass
class Monitored:
    """What headless asks of a start."""

    url: str
    record: Record
    exit_error: Callable[[], StartFailed | None]

    def check_port(self) -> None:
        return


def launch_of(url: str, folder: Path, ended: Callable[[], StartFailed | None]) -> Launch:
    record = Record("demo", url, 1, 1, None, 1.0, str(folder / "log"), str(folder / "token"))
    return cast(Launch, Monitored(url, record, ended))


async def test_samples_end_with_their_engine_though_another_answers(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "the-key")
    ends = iter((None, None, StartFailed("the engine ended")))
    with pytest.raises(StartFailed, match="the engine ended"):
        await print_samples(launch_of(url, tmp_path, lambda: next(ends)), 0.01)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["up"] for line in lines] == [True, True, False]


async def test_an_api_key_that_is_missing_or_wrong_is_told(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(url, tmp_path, lambda: None)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with pytest.raises(Unauthorized, match="requires an API key") as missing:
        await print_samples(launch, 0.01)
    monkeypatch.setenv("VLLM_API_KEY", "another")
    with pytest.raises(Unauthorized, match="the API key is not the one of") as wrong:
        await print_samples(launch, 0.01)
    assert "VLLM_API_KEY" in str(missing.value.remedy)
    assert "VLLM_API_KEY" in str(wrong.value.remedy)


@dataclass
class Another:
    """What is told of a start beside others."""

    name: str
    others: tuple[Record, ...]


def test_a_start_beside_others_names_the_latest_and_how_to_get_to_it() -> None:
    first = Record("demo", "http://127.0.0.1:1", 1, 1, None, 1.0, "log", "token", ready=2.0)
    later = Record("demo-2", "http://127.0.0.1:2", 2, 2, None, 3.0, "log", "token")
    assert describe_others(cast(Launch, Another("demo", ()))) == ()
    assert describe_others(cast(Launch, Another("demo-2", (first,)))) == (
        "demo runs already at http://127.0.0.1:1",
        "`specdeck attach demo` shows it",
        "this is another engine, demo-2",
    )
    found = describe_others(cast(Launch, Another("demo-3", (later, first))))
    assert found[0] == ("demo-2 is starting already at http://127.0.0.1:2, 1 more in `specdeck ps`")


@dataclass
class Ready:
    """What is told of an engine that is ready."""

    record: Record
    unrecorded: str | None
    is_listed: bool
    name: str = "demo"
    url: str = "http://127.0.0.1:1"


def test_an_engine_whose_record_is_gone_is_ended_by_its_pid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = Record("demo", "http://127.0.0.1:1", 17, 1, None, 1.0, "log", "token")
    gone = cast(Launch, Ready(record, "its record is gone", is_listed=False))
    full = cast(Launch, Ready(record, "its record cannot be written: no space", is_listed=True))
    assert how_to_end(gone) == "`kill 17` ends it"
    assert how_to_end(full) == "`specdeck stop demo`"
    log_running(gone)
    log_unrecorded(full)
    assert capsys.readouterr().err.splitlines() == [
        "demo still runs at http://127.0.0.1:1: `specdeck attach http://127.0.0.1:1`, "
        "`kill 17` ends it",
        "demo is ready, and `ps` does not say so: its record cannot be written: no space",
    ]
