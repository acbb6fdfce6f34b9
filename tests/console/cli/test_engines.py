"""What `--admin-token-file` says of a file that is not there."""

from __future__ import annotations

import pytest

from specdeck.console.cli.main import outcome


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ("PLANT-token_0c5b1f77", False),
        ("0c5b1f77aaaa.PLANT-0123456789abcdefghijklmnopqrstuv", False),
        ("PLANTADMIN.token-0c5b1f77", False),
        ("PLANT" * 100, False),
        ("./PLANT", True),
        ("PLANT.txt", True),
    ],
)
def test_a_token_in_place_of_its_file_is_not_quoted(
    given: str, quoted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["set", "127.0.0.1:9", "k=3", "--admin-token-file", given]) == 2
    said = capsys.readouterr().err
    assert "--admin-token-file" in said
    assert ("PLANT" in said) is quoted
