"""README says what the code says."""

from pathlib import Path

from specdeck.console import keys

README = Path(__file__).parents[1] / "README.md"


def test_readme_has_the_table_of_keys() -> None:
    assert keys.markdown() in README.read_text()
