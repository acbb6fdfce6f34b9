"""No error repeats a password or a key of an address, whatever it was typed for."""

import tracemalloc
from pathlib import Path

import pytest

from specdeck.console.cli.main import outcome
from specdeck.console.cli.typed_credentials import TypedCredentials

ADDRESSES = (
    "http://ops:hunter2@127.0.0.1:9",
    "ops:hunter2@127.0.0.1:9",
    "http://hunter2@127.0.0.1:9",
    "http://ops:hunter2/hunter2@127.0.0.1:9",
    "http://ops:hunter2%40127.0.0.1:9",
    "http://ops%3AHunter2%40127.0.0.1:9",
    "http://ops:hunter2\uff20127.0.0.1:9",
    "http://127.0.0.1:9/?api_key=hunter2",
    "127.0.0.1:9?api_key=hunter2",
    "http://127.0.0.1:9/#hunter2",
    "http://127.0.0.1:9/?sig=hunter2/20261130//hunter2&key=AK/hunter2/f.zip",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path))


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "command",
    [
        "U",
        "stop U --json",
        "stop one U",
        "export U",
        "replay U --json",
        "run U --detach",
        "run a.yaml --detach --port=U",
        "gate U --json",
        "gate --save U 127.0.0.1:9",
        "incident demo --since U",
        "incident 127.0.0.1:9 --json -o U",
        "incident 127.0.0.1:9 -o U/f.zip",
        "set 127.0.0.1:9 k=U",
        "set U k=2",
        "doctor U",
        "check 127.0.0.1:9 --prompts U",
    ],
)
def test_no_error_repeats_a_credential_of_an_address(
    command: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("U", address) for word in command.split()]
    assert outcome(["--debug", *words]) in (2, 3)  # some are the names of files as well
    said = capsys.readouterr()
    assert "hunter2" not in (said.out + said.err).lower()
    assert "specdeck: " in said.err


@pytest.mark.parametrize("length", range(60))
def test_a_value_that_an_error_cuts_is_hidden_as_well(
    length: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in (f"127.0.0.1:9/{'p' * length}?key=Hunter2hunter2", f"{'u' * length}:hunter2@h"):
        assert outcome(["set", "127.0.0.1:9", f"k=http://{part}"]) == 2
        assert "hunter" not in capsys.readouterr().err.lower()


def test_an_address_of_very_many_slashes_is_hidden_in_little_memory() -> None:
    folders = "/".join(f"secret{number}" for number in range(12_000))
    tracemalloc.start()
    try:
        typed = TypedCredentials([f"http://127.0.0.1:9/?key={folders}"])
        assert "secret" not in typed.hide(f"no file ?key={folders.rpartition('/')[0]}")
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_what_is_no_credential_is_quoted() -> None:
    typed = TypedCredentials(["configs/a#1.yaml", "see ana@gpu-1: k=3", "ana@gpu-1", "gpu-1:8000"])
    text = "configs/a#1.yaml, see ana@gpu-1: k=3, gpu-1:8000"
    assert typed.hide(text) == text
