"""A defect in the console ends it with one line, a report and 70, and shows no secret anywhere."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from tests.support.engine_state import engine_state
from tests.support.escapes import PLANTED
from tests.support.http_engine import HttpEngine, serve_engine
from tests.support.terminal import Terminal

from specdeck.console.cli.crash import KEPT_REPORTS, report_crash
from specdeck.engine.client.secret import Secret
from specdeck.engine.protocol.messages import PREFIX, Capability

TOKEN, KEY = "the-admin-token", "the-api-key-of-it"

RUN = """
import sys
from specdeck.console.cli.main import main
main(sys.argv[1:])
"""
DEFECT = """
from specdeck.engine.client.engine_client import EngineClient

async def put(self, change):
    token = self.token()
    header = token.reveal() if hasattr(token, "reveal") else token
    raise ZeroDivisionError(f"illegal header value {header!r}")

EngineClient.put = put
"""

Attach = Callable[..., Terminal]


@pytest.fixture
def engine() -> Iterator[HttpEngine]:
    with serve_engine(HttpEngine()) as engine:
        state = engine_state(capabilities=(Capability("live_k", True),))
        engine.answers[f"{PREFIX}/state"] = (200, state.as_json())
        yield engine


@pytest.fixture
def attach(engine: HttpEngine, tmp_path: Path) -> Iterator[Attach]:
    """Opens the console on the engine, armed, and waits until it shows readings."""
    opened: list[Terminal] = []

    def start(program: str = RUN, extra: Mapping[bytes, bytes] | None = None) -> Terminal:
        environment = {
            **os.environ,
            "SPECDECK_HOME": str(tmp_path),
            "SPECDECK_ADMIN_TOKEN": TOKEN,
            "MY_KEY": KEY,
            **{os.fsdecode(name): os.fsdecode(held) for name, held in (extra or {}).items()},
        }
        words = ["attach", engine.url, "--control", "--api-key-env", "MY_KEY"]
        terminal = Terminal([sys.executable, "-c", program, *words], environment)
        opened.append(terminal)
        terminal.until(lambda text: "applied 5" in text, timeout=60)
        return terminal

    yield start
    for one in opened:
        one.close()


def test_a_crash_shows_no_local_variable_and_no_secret(attach: Attach, tmp_path: Path) -> None:
    console = attach(DEFECT + RUN)
    console.press("-")
    assert console.wait(timeout=60) == 70
    assert console.is_restored()
    said = console.raw[console.raw.rindex(b"\x1b[?1049l") :].decode()
    assert said.count("specdeck: ") == 1
    assert "the console failed: unexpected ZeroDivisionError: illegal header value" in said
    (report,) = (tmp_path / "state" / "crashes").iterdir()
    assert report.name in said.replace("\r\n", "")
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert "Traceback" in report.read_text()
    for secret in (TOKEN, KEY):
        assert secret.encode() not in console.raw
        assert secret not in report.read_text()


def test_a_login_in_another_encoding_is_no_defect(attach: Attach, engine: HttpEngine) -> None:
    console = attach(extra={b"LOGNAME": b"j\xf6rg\xff"})
    console.press("-")

    def changes() -> list[str]:
        sent = [one.content for one in engine.sent_to("/control")]
        # An empty one tries the token.
        return [httpx.Response(200, content=one).text for one in sent if one != b"{}"]

    console.until(lambda text: changes(), timeout=60)
    console.drain()
    assert console.process.poll() is None
    assert ["j\N{REPLACEMENT CHARACTER}rg" in text for text in changes()] == [True]


def test_a_report_can_be_shown_on_a_terminal(tmp_path: Path) -> None:
    report_crash(ZeroDivisionError(PLANTED), tmp_path)
    (report,) = tmp_path.glob("console-*.txt")
    said = report.read_text()
    assert "owned" in said
    assert all(line.isprintable() for line in said.split("\n"))


def test_old_reports_make_room(tmp_path: Path) -> None:
    seconds = iter(range(KEPT_REPORTS + 3))
    for _ in range(KEPT_REPORTS + 3):
        report_crash(ValueError("x"), tmp_path, clock=lambda: float(next(seconds)))
    assert len(list(tmp_path.iterdir())) == KEPT_REPORTS


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_no_report_goes_where_its_name_was_taken_before(planted: str, tmp_path: Path) -> None:
    mine, crashes = tmp_path / "mine", tmp_path / "crashes"
    mine.write_text("precious")
    crashes.mkdir()
    name = crashes / f"console-{time.strftime('%Y%m%d-%H%M%S', time.localtime(0))}.txt"
    if planted == "link":
        name.symlink_to(mine)
    else:
        os.mkfifo(name)
    found = report_crash(ValueError("x"), crashes, clock=lambda: 0.0)
    assert mine.read_text() == "precious"
    assert ("the report is" in found.line()) == (planted == "link")


def test_a_report_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = report_crash(ValueError(f"{Secret(KEY).reveal()} is odd"), tmp_path / "file")
    assert found.line().startswith(
        "the console failed: unexpected ValueError: … is odd: its report"
    )
