import errno
import fcntl
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.errors import EngineError, UsageError
from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record, Registry, Unreadable, address
from specdeck.engine.launch.stop import stop_engine
from specdeck.engine.paths import locations


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "engines")


def record(name: str = "demo", port: int = 8000, **given: object) -> Record:
    """An engine that runs: this very process, were it a leader."""
    me, here = process.find_leader(os.getpid()), process.find_host()
    assert me is not None
    made = Record(
        name=name,
        url=f"http://127.0.0.1:{port}",
        pid=me.pid,
        born=me.born,
        boot=me.boot,
        started=1.0,
        log="/tmp/x.log",
        token_file="/nowhere/token",
        host=here.name,
        machine=here.machine,
        namespace=here.namespace,
    )
    return replace(made, **given)  # type: ignore[arg-type]  # keyword arguments of a test


def test_a_record_comes_back_as_it_was_written(registry: Registry) -> None:
    added = registry.add(record(model="m", config="c.yaml"))
    assert registry.all() == (added,)


def test_a_record_is_for_its_owner_only(registry: Registry, tmp_path: Path) -> None:
    registry.add(record())
    assert stat.S_IMODE((tmp_path / "engines").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "engines/demo.json").stat().st_mode) == 0o600


def test_the_same_name_twice_is_numbered(registry: Registry) -> None:
    names = [registry.add(record(port=port)).name for port in (1, 2, 3)]
    assert names == ["demo", "demo-2", "demo-3"]


def test_the_name_of_an_engine_that_is_gone_is_free(registry: Registry) -> None:
    registry.add(record(born=1))
    assert registry.add(record()).name == "demo"


def test_the_token_of_an_engine_that_is_gone_goes_with_its_name(
    registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "tokens").mkdir()
    old, new, foreign = tmp_path / "tokens/old", tmp_path / "tokens/new", tmp_path / "foreign"
    for path in (old, new, foreign):
        path.write_text("secret")
    registry.add(record(born=1, token_file=str(old)))
    registry.add(record(born=1, token_file=str(new)))
    assert not old.exists()
    registry.add(record(born=1, token_file=str(new)))
    assert new.exists()
    registry.add(record(born=1, token_file=str(foreign)))
    registry.add(record())
    assert foreign.exists()
    assert not new.exists()


@pytest.mark.parametrize("text", ["demo", "http://localhost:8000/", "127.0.0.1:8000", "8000"])
def test_an_engine_is_found_by_name_url_and_port(registry: Registry, text: str) -> None:
    registry.add(record(name="other", port=9000))
    added = registry.add(record())
    assert registry.find(text) == added


def test_a_living_engine_is_found_where_one_that_was_killed_had_its_port(
    registry: Registry,
) -> None:
    registry.add(record(name="aaa", born=1))
    living = registry.add(record(name="zzz"))
    assert registry.find("8000") == living
    assert registry.find("aaa") != living


@pytest.mark.parametrize("text", ["dem", "http://127.0.0.1:8001", "http://elsewhere:8000", "x:y"])
def test_nothing_else_is_found(registry: Registry, text: str) -> None:
    registry.add(record())
    assert registry.find(text) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "\x00\xff",
        '{"schema": 1}',
        json.dumps(record().as_json() | {"schema": 99}),
        json.dumps(record().as_json() | {"pid": "many"}),
        "[" * 100_000,
        "9" * 5000,
    ],
    # Processes that share the tests must agree on their names.
    ids=[
        "empty",
        "broken",
        "a list",
        "bytes",
        "too little",
        "newer",
        "a word for a number",
        "deep",
        "a long number",
    ],
)
def test_a_record_that_cannot_be_read_hides_no_other(
    registry: Registry, tmp_path: Path, content: str
) -> None:
    good = registry.add(record())
    (tmp_path / "engines/broken.json").write_text(content, encoding="latin-1")
    first, second = registry.all()
    assert isinstance(first, Unreadable)
    assert first.reason
    assert second == good
    assert registry.clean() == (good,)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_record_of_another_user_is_none(registry: Registry, tmp_path: Path) -> None:
    """It would decide where keys and tokens go, and which processes are ended."""
    planted = registry.add(record())
    os.chown(tmp_path / f"engines/{planted.name}.json", 12345, 12345)
    (found,) = registry.all()
    assert isinstance(found, Unreadable)
    assert "another user's file" in found.reason
    assert registry.find(planted.name) is None
    assert registry.clean() == ()
    assert (tmp_path / f"engines/{planted.name}.json").exists()


def test_a_name_that_cannot_be_read_is_not_taken(registry: Registry, tmp_path: Path) -> None:
    registry.add(record(name="other"))
    (tmp_path / "engines/demo.json").write_text("{")
    assert registry.add(record()).name == "demo-2"


def test_removing_takes_the_token_along(registry: Registry, tmp_path: Path) -> None:
    token = tmp_path / "tokens" / "0a1b"
    token.parent.mkdir()
    token.write_text("secret")
    added = registry.add(record(token_file=str(token)))
    registry.remove(added)
    registry.remove(added)
    assert registry.all() == ()
    assert not token.exists()


@pytest.mark.parametrize(
    "named", ["notes", "tokens/../notes", "tokens/link/notes", "tokens", "tokens/..", "\x00", ""]
)
def test_removing_deletes_no_file_that_specdeck_did_not_make(
    registry: Registry, tmp_path: Path, named: str
) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/link").symlink_to(tmp_path)
    notes = tmp_path / "notes"
    notes.write_text("mine")
    added = registry.add(record(token_file=str(tmp_path / named)))
    registry.remove(added)
    assert registry.all() == ()
    assert notes.exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "huge"])
def test_what_is_no_record_file_is_neither_waited_for_nor_read_whole(
    registry: Registry, tmp_path: Path, kind: str
) -> None:
    good, path = registry.add(record()), tmp_path / "engines/broken.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)  # takes no room on the disk
    reason = "larger than" if kind == "huge" else "not a regular file"
    first, second = registry.all()
    assert isinstance(first, Unreadable)
    assert reason in first.reason
    assert "\n" not in first.reason
    assert second == good
    assert registry.clean() == (good,)


def test_a_record_under_the_file_of_another_is_not_used(registry: Registry, tmp_path: Path) -> None:
    gone = registry.add(record(born=1))
    (tmp_path / "engines/demo.json").rename(tmp_path / "engines/other.json")
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps(replace(gone, name="../outside").as_json()))
    (tmp_path / "engines/sly.json").write_bytes(outside.read_bytes())
    assert registry.clean() == ()
    assert [type(entry) for entry in registry.all()] == [Unreadable, Unreadable]
    assert outside.exists()


def test_removing_an_old_engine_spares_the_new_one_of_its_name(registry: Registry) -> None:
    old = registry.add(record(born=1))
    new = registry.add(record())
    registry.remove(old)
    assert registry.all() == (new,)


def test_cleaning_forgets_only_what_is_gone(registry: Registry) -> None:
    kept = registry.add(record(name="kept"))
    registry.add(record(name="gone", born=1))
    assert registry.clean() == (kept,)
    assert registry.all() == (kept,)


def test_a_folder_that_is_held_hides_no_engine_that_runs(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = registry.add(record(name="kept"))
    registry.add(record(name="gone", born=1))
    registry.add(record(name="gone too", born=1))
    monkeypatch.setattr("specdeck.engine.launch.registry.LOCK_S", 0.1)
    with (tmp_path / "engines/.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert registry.clean() == (kept,)
    assert registry.clean() == (kept,)
    assert registry.all() == (kept,)


def refuse_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the folder of records be one that cannot be written to, which nothing is for root."""

    def refuse(self: Registry) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Registry, "_alone", refuse)


async def test_in_a_folder_that_cannot_be_written_to_what_is_gone_is_none_of_the_rest(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = registry.add(record(name="kept"))
    gone = registry.add(record(name="gone", pid=2**22 + 1, born=1))
    refuse_writes(monkeypatch)
    assert registry.clean() == (kept,)
    with pytest.raises(EngineError, match="gone has ended, and its record cannot be deleted"):
        await stop_engine(gone, registry)


def test_what_supervises_an_engine_stays_on_its_machine_when_that_is_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = record()
    monkeypatch.setattr("socket.gethostname", lambda: "renamed")
    assert ours.life() == "running"


def test_a_command_begun_after_the_renaming_says_what_may_have_happened() -> None:
    assert "has been renamed" in (replace(record(), host="before").elsewhere_error().remedy or "")
    assert replace(record(born=1), host="other").elsewhere_error().remedy == "go there"


def test_too_few_open_files_make_no_other_host(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = registry.add(record())

    def refuse(*args: object, **kwargs: object) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/etc/machine-id")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        ours.life()


def test_a_pid_that_was_given_away_is_another_process() -> None:
    assert record().life() == "running"
    assert record(born=1).life() == "gone"
    assert record(boot="another boot").life() == "gone"


@pytest.mark.parametrize(
    "given",
    [
        {"host": "gpu-2"},
        {"host": "gpu-2", "boot": "another boot"},
        {"machine": "another"},
        {"namespace": "pid:[1]"},
        {"boot": "another boot", "started": 9e9},
        {"host": None, "born": 1},
        {"host": None, "boot": "another boot"},
    ],
    ids=[
        "another host", "its boot", "of the same name", "a container", "booted after this one",
        "an older record", "and an older boot",
    ],
)  # fmt: skip
async def test_what_another_host_started_is_elsewhere_and_nothing_of_it_is_deleted(
    registry: Registry, tmp_path: Path, given: dict[str, Any]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    theirs = registry.add(replace(record(token_file=str(token)), **given))
    assert theirs.life() == "elsewhere"
    assert registry.clean() == (theirs,)
    with pytest.raises(EngineError, match="demo "):
        await stop_engine(theirs, registry)
    assert registry.all() == (theirs,)
    assert token.exists()
    assert registry.holder(8000) is None
    assert registry.find("http://127.0.0.1:8000") is None
    assert registry.find("demo") == theirs
    assert registry.add(record(port=9000)).name == "demo-2"


def test_a_record_of_an_older_specdeck_is_this_hosts_while_its_process_is() -> None:
    older = record(host=None, machine=None, namespace=None)
    assert older.life() == "running"
    assert replace(older, born=1).life() == "elsewhere"


async def test_without_a_machine_id_another_boot_is_elsewhere(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two machines may have one name, and the other one may have been started long before."""
    monkeypatch.setattr(process, "_MACHINE_ID", tmp_path / "none")
    ours = registry.add(record())
    theirs = registry.add(record(name="theirs", port=9000, boot="another boot"))
    assert ours.life() == "running"
    assert theirs.life() == "elsewhere"
    assert registry.clean() == (ours, theirs)
    with pytest.raises(EngineError, match="without a machine id") as refusal:
        await stop_engine(theirs, registry)
    assert refusal.value.remedy == "once it has ended, delete its record"
    assert registry.records() == (ours, theirs)


def test_an_earlier_boot_of_this_host_left_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef\n")
    monkeypatch.setattr(process, "_MACHINE_ID", tmp_path / "machine-id")
    assert record(boot="another boot", namespace="pid:[1]").life() == "gone"


def test_updating_a_removed_record_does_not_bring_it_back(registry: Registry) -> None:
    added = registry.add(record())
    registry.update(replace(added, ready=2.0))
    assert registry.records()[0].ready == 2.0
    registry.remove(added)
    registry.update(added)
    assert registry.all() == ()


def test_updating_an_old_engine_spares_the_new_one_of_its_name(registry: Registry) -> None:
    old = registry.add(record(born=1))
    new = registry.add(record(port=9000))
    registry.update(replace(old, ready=2.0))
    assert registry.all() == (new,)


def test_an_empty_registry_creates_nothing(registry: Registry, tmp_path: Path) -> None:
    assert registry.all() == ()
    assert registry.clean() == ()
    assert registry.find("demo") is None
    assert list(tmp_path.iterdir()) == []


def test_a_url_without_a_port_has_its_schemes() -> None:
    assert address("https://gpu-7") == ("gpu-7", 443)


def test_every_folder_lies_under_the_home_that_was_asked_for(tmp_path: Path) -> None:
    found = locations({"SPECDECK_HOME": str(tmp_path)})
    for folder in (found.engines, found.tokens, found.logs, found.models, found.store):
        assert folder.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_port_is_an_engines_from_its_registration_on(registry: Registry) -> None:
    registry.add(record(born=1, port=9000))
    added = registry.add(record())
    assert registry.holder(8000) == added
    assert registry.holder(9000) is None
    with pytest.raises(UsageError, match="port 8000 is demo's, which is starting"):
        registry.add(record("second"), exclusive=True)
    assert registry.find("second") is None
    registry.update(replace(added, ready=2.0))
    with pytest.raises(UsageError, match="port 8000 is demo's, which runs"):
        registry.add(record("second"), exclusive=True)


def test_a_console_that_is_stopped_does_not_hold_up_the_others_for_ever(tmp_path: Path) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    registry = Registry(tmp_path / "engines", clock=lambda: now[0], sleep=sleep)
    added = registry.add(record())
    with (tmp_path / "engines/.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for change in (registry.add, registry.update, registry.remove):
            began = now[0]
            with pytest.raises(EngineError, match=r"another specdeck has held .* for 5 s"):
                change(added)
            assert 5 <= now[0] - began < 6
        assert registry.all() == (added,)
    registry.remove(added)
    assert registry.all() == ()


def test_records_are_kept_where_the_file_system_has_no_locks(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    added = registry.add(record())
    assert registry.all() == (added,)


def test_a_link_in_the_locks_place_is_neither_followed_nor_waited_for(
    registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines/.lock").symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="a link"):
        registry.add(record())
    assert not (tmp_path / "made").exists()
