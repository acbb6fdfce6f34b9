"""What is collected: no reason for what is missing has a credential in it, nor the head of one."""

from pathlib import Path

import pytest
from tests.support.readings import START, URL

from specdeck.engine.incident.collect import Sources, assemble
from specdeck.engine.incident.live import Live
from specdeck.engine.incident.material import Span

KEY = "zq7-planted-credential-x1"


@pytest.mark.parametrize("before", range(264, 304, 4))
def test_no_head_of_a_known_secret_stays_where_a_reason_is_cut(before: int, tmp_path: Path) -> None:
    said = "x" * before + KEY
    config = tmp_path / said[-250:]
    sources = Sources(URL, "demo", config=config, secrets=(KEY,), missing={"recording": said})
    live = Live(START, missing={"facts": said, "cohorts": f"{'x' * before}redis://u:zq7-1@cache"})
    made = assemble(sources, Span(START, START + 60), live, written=START + 60)
    assert {"recording", "facts", "cohorts", "config.yaml"} <= set(made.missing)
    assert not any("zq7" in reason for reason in made.missing.values())
