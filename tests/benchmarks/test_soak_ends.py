"""What a soak keeps of a console that ended by itself."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak_ends import KEPT, LONGEST, MOST_LINES, ConsoleEnd, read_report, read_words

TOKEN = "planted-admin-token"


def test_the_last_screen_is_kept_where_nothing_was_said() -> None:
    screen = b"\x1b[?1049h" + b"".join(b"\x1b[%d;1Hrow %d" % (n, n) for n in range(1, 25))
    assert read_words(screen)[-1] == "row 24"
    assert read_words(b"") == ()


def test_what_is_kept_is_bounded_and_has_no_secret() -> None:
    long = b"\r\n".join(b"x" * 1_000 + b" %d" % n for n in range(1_000))
    found = read_words(
        long + f"\r\nerror: {TOKEN} password=pw \x1b]52;c;AAAA\x07".encode(), [TOKEN]
    )
    assert len(found) <= MOST_LINES
    assert max(map(len, found)) <= LONGEST
    assert found[-1] == "error: *** password=***"
    assert sum(map(len, found)) < KEPT


def test_the_report_of_a_crash_is_that_of_this_console(tmp_path: Path) -> None:
    assert read_report(tmp_path, 0.0) == ()
    path = tmp_path / "console-20260101-000000.txt"
    path.write_text(f"Traceback\n  File x\nValueError: {TOKEN}\n")
    at = path.stat().st_mtime
    report = read_report(tmp_path, at - 5.0, [TOKEN])
    assert report == ("Traceback", "  File x", "ValueError: ***")
    assert read_report(tmp_path, at + 5.0) == ()
    told = ConsoleEnd("operator-1", 70, 12.4, ("failed",), report).lines()
    assert told[0] == "operator-1 ended with 70 after 12 s:"
    assert told[2:4] == ["    failed", "    Traceback"]
