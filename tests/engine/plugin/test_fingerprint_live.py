"""The live name: partial until all is read, seen by every process, put into responses."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specdeck.engine.fingerprint.name import is_partial
from specdeck.engine.plugin import fingerprint
from specdeck.engine.plugin.fingerprint import (
    Board,
    Identity,
    Reader,
    attention_backends,
    learn,
    read_beside,
    read_own_clock,
)
from specdeck.engine.plugin.responses import Stamp, carry, follow

LIVE = {"k": 6, "mode": "speculate"}
READ = {"model": {"target": {"weights": {"a": "1"}}}, "runtime": {"driver": "570"}}


def test_a_name_is_partial_until_all_is_read() -> None:
    shown: list[str] = []
    identity = Identity({"runtime": {"device": "cpu"}}, complete=False, on_name=shown.append)
    before = identity.now(LIVE)
    assert is_partial(before)
    identity.complete(READ, [])
    after = identity.now(LIVE)
    assert not is_partial(after)
    assert shown == [before, after]
    assert identity.as_json()["facts"]["runtime"] == {"device": "cpu", "driver": "570"}


def test_what_could_not_be_read_keeps_it_partial_for_good() -> None:
    identity = Identity({}, complete=False)
    identity.complete(READ, [{"fact": "model.draft.weights", "reason": "Permission denied"}])
    assert is_partial(identity.now(LIVE))
    assert identity.as_json()["partial"][0]["reason"] == "Permission denied"


def test_only_the_path_moves_with_k() -> None:
    identity = Identity({"a": 1})
    six = identity.now(LIVE)
    names = identity.as_json()["names"]
    five = identity.now({**LIVE, "k": 5})
    assert five != six
    assert identity.as_json()["names"] == {"build": names["build"], "path": five}
    assert identity.now(LIVE) == six


def test_another_process_reads_the_board_at_once() -> None:
    board = Board("0123456789abcdef")
    board.write("sd1:p0000000000000000")
    reader = Reader.of(board.path, "0123456789abcdef")
    assert reader is not None
    assert reader.name() == "sd1:p0000000000000000"
    board.write("sd1:p~1111111111111111")
    assert reader.name() == "sd1:p~1111111111111111"


@pytest.mark.parametrize("instance", ["fedcba9876543210"])
def test_another_engines_board_is_none(instance: str) -> None:
    board = Board("0123456789abcdef")
    board.write("sd1:p0000000000000000")
    assert Reader.of(board.path, instance) is None
    assert Reader.of("/proc/1/fd/99999", instance) is None
    assert Reader.of("/proc/self/maps", instance) is None


def test_no_board_is_read_that_can_be_cut_short(tmp_path: Path) -> None:
    board = Board("0123456789abcdef")
    board.write("sd1:p0000000000000000")
    with pytest.raises(OSError, match="not permitted"):
        os.truncate(board.path, 0)
    (tmp_path / "board").write_bytes(Path(board.path).read_bytes())
    assert Reader.of(str(tmp_path / "board"), "0123456789abcdef") is None


def test_a_torn_record_leaves_the_last_good_name() -> None:
    board = Board("0123456789abcdef")
    board.write("sd1:p0000000000000000")
    reader = Reader.of(board.path, "0123456789abcdef")
    assert reader is not None
    board._memory[30:34] = b"torn"
    assert reader.name() == "sd1:p0000000000000000"


class Serving:
    system_fingerprint: str | None

    def __init__(self, own: str | None) -> None:
        self.system_fingerprint = own


def test_responses_carry_vllms_own_value_and_the_path_at_that_moment() -> None:
    stamp = Stamp()
    earlier = Serving("vllm-0.32.0-0")
    carry(Serving, stamp)
    serving = Serving("vllm-0.32.0-0")
    assert (earlier.system_fingerprint, serving.system_fingerprint) == ("vllm-0.32.0-0",) * 2
    stamp.name = lambda: "sd1:p0"
    assert earlier.system_fingerprint == serving.system_fingerprint == "vllm-0.32.0-0-sd1:p0"
    stamp.name = lambda: "sd1:p1"
    assert serving.system_fingerprint == "vllm-0.32.0-0-sd1:p1"
    assert Serving(None).system_fingerprint is None


async def test_a_pinned_request_says_so_and_its_neighbour_does_not() -> None:
    class Answering(Serving):
        async def answer(self, request: Any) -> Any:
            return self.stream() if request.stream else self.system_fingerprint

        async def stream(self) -> AsyncIterator[str | None]:
            yield self.system_fingerprint

    stamp = Stamp()
    stamp.name = lambda: "sd1:p0"
    carry(Answering, stamp)
    follow(Answering, "answer")
    serving = Answering("vllm")
    pinned = {"vllm_xargs": {"specdeck_k": 0}}
    for more, said in ((pinned, "vllm-sd1:p0+k0"), ({"vllm_xargs": None}, "vllm-sd1:p0")):
        whole = SimpleNamespace(stream=False, **more)
        assert await asyncio.create_task(serving.answer(whole)) == said
        stream = await asyncio.create_task(serving.answer(SimpleNamespace(stream=True, **more)))
        assert await asyncio.create_task(anext(stream)) == said


def test_the_reading_process_answers_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "json.py").write_text("raise SystemExit('imported from the working folder')")
    monkeypatch.chdir(folder)
    (tmp_path / "model.safetensors").write_bytes(b"w" * 10)
    (tmp_path / "config.json").write_text("{}")
    said: list[Any] = []
    request = {"models": {"target": {"name": str(tmp_path)}}, "cache": str(tmp_path / "c.json")}
    result = read_beside(request, said.append)
    assert set(result["model"]["target"]["weights"]) == {"model.safetensors"}
    assert result["unread"] == []
    assert said == [{"bytes": 10, "total_bytes": 10, "file": "model.safetensors"}]


def test_what_python_prints_as_it_starts_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('patched'); print('{}', end='')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    said: list[Any] = []
    assert read_beside({}, said.append)["unread"] == []
    assert said == []


def test_a_reading_process_that_dies_leaves_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "_READER", "specdeck.no_such_module")
    identity = Identity({}, complete=False)
    learn(identity, {"loaded": {}}, {}, 0.0)
    reply = identity.as_json()
    assert is_partial(reply["fingerprint"])
    assert "without a result" in reply["partial"][0]["reason"]
    assert reply["progress"]["finished"] is True


def test_a_defect_in_the_thread_that_reads_leaves_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fingerprint, "read_beside", lambda request, note: {})
    identity = Identity({}, complete=False)
    learn(identity, {"loaded": {}}, {}, 0.0)
    reply = identity.as_json()
    assert is_partial(reply["fingerprint"])
    assert reply["partial"][0]["reason"] == "the reading process failed: KeyError: 'model'"
    assert reply["progress"]["finished"] is True


def test_whoever_reads_that_it_is_finished_reads_the_names_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: dict[str, Any] = {"model": {"target": {}}, "runtime": {}, "unread": [], "bytes": 1}
    monkeypatch.setattr(fingerprint, "read_beside", lambda request, note: read)
    names: list[tuple[bool, str]] = []

    class WatchedEngine(Identity):
        def note(self, progress: Mapping[str, Any]) -> None:
            super().note(progress)
            names.append((self.as_json()["progress"]["finished"], self.as_json()["fingerprint"]))

    identity = WatchedEngine({}, complete=False)
    learn(identity, {"loaded": {}}, {}, 0.0)
    assert names == [(True, identity.as_json()["fingerprint"])]
    assert not is_partial(names[0][1])


def test_time_for_which_others_had_the_cpu_is_not_the_threads_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures = iter(("5000000 2500000000 7\n", None, "none"))
    monkeypatch.setattr(time, "perf_counter", lambda: 10.0)
    monkeypatch.setattr(fingerprint, "text", lambda path: next(figures))
    assert [read_own_clock() for _ in range(3)] == [7.5, 10.0, 10.0]


def test_backends_are_found_however_deep_the_runner_keeps_them() -> None:
    class Group:
        backend = type("FlashAttentionBackend", (), {})

    class Runner:
        attn_groups = ([Group()], [[Group()]])

    class Worker:
        model_runner = Runner()

    assert attention_backends(Worker()) == ["FlashAttentionBackend"]
    assert attention_backends(object()) == []


def test_the_reader_needs_no_more_than_the_standard_library() -> None:
    import subprocess

    code = (
        "import sys, json; import specdeck.engine.fingerprint.gather;"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    loaded = set(json.loads(subprocess.check_output([sys.executable, "-I", "-c", code])))
    assert not loaded & {"torch", "vllm", "httpx", "pydantic", "yaml", "numpy"}
