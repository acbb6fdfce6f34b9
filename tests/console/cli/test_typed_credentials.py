"""No error repeats a password or a key of an address, whatever it was typed for."""

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
        "check 127.0.0.1:9 --prompts U",
    ],
)
def test_no_error_repeats_a_credential_of_an_address(
    command: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("U", address) for word in command.split()]
    assert outcome(["--debug", *words]) in (2, 3)  # some are the names of files as well
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err
    assert "specdeck: " in said.err


def test_what_is_no_credential_is_quoted() -> None:
    typed = TypedCredentials(["configs/a#1.yaml", "see ana@gpu-1: k=3", "ana@gpu-1", "gpu-1:8000"])
    text = "configs/a#1.yaml, see ana@gpu-1: k=3, gpu-1:8000"
    assert typed.hide(text) == text
