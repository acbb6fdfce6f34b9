"""The engines that specdeck started: one small file for each, so that `ps` finds them again."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from specdeck.engine.client.address import engine_url
from specdeck.engine.errors import EngineError, UsageError
from specdeck.engine.files import open_lock, read_file, replace_file
from specdeck.engine.launch import process
from specdeck.engine.launch.ports import port_refusal
from specdeck.engine.paths import private
from specdeck.engine.protocol.codec import UnixTime, Within, loads, read_record

SCHEMA = 1
"""Raised when a record changes its meaning; a newer one is listed, not read."""

_LARGEST = 64_000
"""Bytes of a record; it names a few paths."""

LOCK_S = 5.0
"""How long another console may hold the records: it writes or deletes a small file meanwhile."""
_LOCK_POLL_S = 0.05

Life = Literal["running", "orphans", "gone", "elsewhere"]
"""`orphans`: the server is dead, and workers of it are not.

`elsewhere`: another host or container started it, so that nothing is known of it here.
"""


@dataclass(frozen=True, slots=True)
class Record:
    """One engine as it was started."""

    name: str
    url: str
    pid: Annotated[int, Within(1, 2**31 - 1)]
    born: int
    """See `process.Process.born`."""
    boot: str | None
    started: UnixTime
    """Unix time, seconds."""
    log: str
    token_file: str
    config: str | None = None
    model: str | None = None
    ready: UnixTime | None = None
    """Unix time at which it first answered; None while it starts."""
    version: str | None = None
    """specdeck's own, at the start."""
    host: str | None = None
    """The host that it runs on; None in a record of an older specdeck."""
    machine: str | None = None
    """See `process.Host.machine`."""
    namespace: str | None = None
    """See `process.Host.namespace`."""
    arguments: str | None = None
    """`Config.arguments_digest` at the start; None in a record of an older specdeck."""
    schema: int = SCHEMA

    @property
    def leader(self) -> process.Leader:
        """The identity of the engine's first process."""
        return process.Leader(self.pid, self.born, self.boot)

    @property
    def token_path(self) -> Path:
        """The file with the engine's admin token."""
        return Path(self.token_file)

    @property
    def address(self) -> str:
        """The address that the engine is reached at."""
        return urlsplit(self.url).hostname or "127.0.0.1"

    @property
    def port(self) -> int | None:
        """The port that the engine listens on."""
        return urlsplit(self.url).port

    def is_here(self) -> bool:
        """Whether it was started on this host, so that its pid means something here.

        A record of an older specdeck names no host: it is this one's while its process is.
        """
        if self.host is None:
            return process.leads(self.leader) or bool(process.members(self.leader))
        here = process.find_host()
        if (self.host, self.machine) != (here.name, here.machine):
            return False
        if self.boot == process.boot():
            return self.namespace == here.namespace
        if here.machine is None:
            return False  # any machine of this name may have written it
        booted = process.find_boot_time()
        # Later than this boot, and of another one: a second machine has this one's name.
        return booted is not None and self.started < booted

    def elsewhere_error(self) -> EngineError:
        """The error of asking here for what only its own host can do."""
        if self.host is None:
            return EngineError(
                f"{self.name} is in a record without a host, and no process of this one",
                remedy="go to the host that started it; once it has ended, delete its record",
            )
        here = process.find_host()
        if (self.host, self.machine) == (here.name, None) and self.boot != process.boot():
            return EngineError(
                f"{self.name} is of another boot, and without a machine id "
                f"nothing tells whether of this {self.host}",
                remedy="once it has ended, delete its record",
            )
        if self.host == here.name:
            return EngineError(
                f"{self.name} runs on another machine or container called {self.host}, not here",
                remedy="go there; once that has ended, delete its record",
            )
        remedy = "go there"
        if (self.boot, self.namespace) == (process.boot(), here.namespace) and process.leads(
            self.leader
        ):
            remedy = f"go there, or call this machine {self.host} again if it has been renamed"
        return EngineError(f"{self.name} runs on {self.host}, not here", remedy=remedy)

    def life(self) -> Life:
        """What is left of it."""
        if not self.is_here():
            return "elsewhere"
        if process.leads(self.leader):
            return "running"
        return "orphans" if process.members(self.leader) else "gone"

    def serves(self) -> bool:
        """Whether it listens, or once did; vLLM listens only once it can answer."""
        if self.ready is not None or self.port is None:
            return True
        return port_refusal(self.address, self.port) is not None

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the file and for `ps --json`; the token itself is in neither."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """The record in `data`; raises ValueError when it is none, or a newer one."""
        if not isinstance(data, dict):
            raise ValueError("not a record")
        if data.get("schema") != SCHEMA:
            raise ValueError("written by another version of specdeck")
        record = read_record(cls, data)
        try:
            engine_url(record.url)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return record


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file in the registry that is no record this version can read."""

    path: Path
    reason: str


class Registry:
    """The records in one folder, shared by every specdeck of one user.

    The tokens lie in the folder `tokens` beside it. What writes or deletes a record raises
    EngineError where another console holds the records for LOCK_S.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root = root
        self._tokens = root.with_name("tokens")
        self._clock, self._sleep = clock, sleep

    def add(self, record: Record, *, exclusive: bool = False) -> Record:
        """Writes `record` under its name or, where that is taken, with `-2`, `-3`, ….

        Returns the record as it was written. With `exclusive` it raises UsageError where a
        living engine has the port, also one that was registered a moment ago.
        """
        with self._alone():
            if exclusive and record.port is not None and (found := self.holder(record.port)):
                raise port_conflict(record.port, found)
            named = replace(record, name=self._free(record.name, record.token_path))
            self._write(named)
        return named

    def update(self, record: Record) -> bool:
        """Writes `record` again; False where it was removed or another engine has its name by now.

        Raises OSError where it cannot be written, and stays as it was.
        """
        with self._alone():
            if not self._has(record):
                return False
            self._write(record)
            return True

    def is_forgotten(self, record: Record) -> bool:
        """Whether nothing lies under its name any more, as once somebody has stopped its engine."""
        return not os.path.lexists(self._path(record.name))

    def all(self) -> tuple[Record | Unreadable, ...]:
        """Every file, by name; a broken one hides no other."""
        if not self._root.is_dir():
            return ()
        return tuple(_read(path) for path in sorted(self._root.glob("*.json")))

    def records(self) -> tuple[Record, ...]:
        """The files that can be read."""
        return tuple(entry for entry in self.all() if isinstance(entry, Record))

    def find(self, text: str) -> Record | None:
        """The record of this name, or the one of this host with this URL or port.

        An engine that was killed may have left its own where another one has its port by now.
        """
        records = self.records()
        for record in records:
            if record.name == text:
                return record
        wanted = address(text)
        found = [r for r in records if wanted and address(r.url) == wanted and r.is_here()]
        if len(found) == 1:
            return found[0]
        living = (record for record in found if record.life() == "running")
        return next(living, found[0] if found else None)

    def holder(self, port: int) -> Record | None:
        """The living engine that has `port`, or will have it once it has started.

        An engine that starts does not listen yet, so the kernel would give its port away.
        """
        return next((r for r in self.records() if r.port == port and r.life() == "running"), None)

    def remove(self, record: Record) -> None:
        """Deletes the record and the engine's token; without effect when it is gone."""
        with self._alone():
            if self._has(record):
                self._path(record.name).unlink(missing_ok=True)
            self._remove_secrets(record.token_path)

    def next_name(self, name: str) -> str:
        """The name that an engine of `name` would be registered under now."""
        return self._find_free(name)[0]

    def clean(self) -> tuple[Record, ...]:
        """Removes the records of engines of which nothing is left, and returns the others.

        What other hosts share this folder is theirs, and stays. So does a record in a folder
        that cannot be written to; it is none of those returned.
        """
        known = [(record, record.life()) for record in self.records()]
        with suppress(EngineError):  # the folder is held by another process
            for record in (record for record, life in known if life == "gone"):
                with suppress(OSError):
                    self.remove(record)
        return tuple(record for record, life in known if life != "gone")

    def _free(self, name: str, keep: Path) -> str:
        """A name that no engine has; of one that is gone the token goes, unless it is `keep`."""
        free, gone = self._find_free(name)
        if gone is not None and gone.token_path != keep:
            self._remove_secrets(gone.token_path)
        return free

    def _find_free(self, name: str) -> tuple[str, Record | None]:
        """A name that no engine has, and the record of one that is gone under it."""
        base, number = slug(name), 1
        while True:
            candidate = base if number == 1 else f"{base}-{number}"
            path = self._path(candidate)
            found = _read(path) if path.exists() else None
            if found is None:
                return candidate, None
            if isinstance(found, Record) and found.life() == "gone":
                return candidate, found
            number += 1

    def _remove_secrets(self, token: Path) -> None:
        """Deletes an engine's token, and its arguments with secrets where it never was ready."""
        if self._is_own(token):
            token.unlink(missing_ok=True)
            private_file(token).unlink(missing_ok=True)

    def _is_own(self, token: Path) -> bool:
        """Whether a record's token is a file that specdeck made: anybody's path may be named."""
        try:
            same = token.parent.resolve() == self._tokens.resolve()
            return same and stat.S_ISREG(token.lstat().st_mode)
        except (OSError, ValueError, RuntimeError):
            return False

    def _has(self, record: Record) -> bool:
        """Whether the name is still its own: a later engine may have it already."""
        found = _read(self._path(record.name))
        return isinstance(found, Record) and found.leader == record.leader

    def _path(self, name: str) -> Path:
        return self._root / f"{name}.json"

    def _write(self, record: Record) -> None:
        text = json.dumps(record.as_json(), indent=1)
        replace_file(self._path(record.name), text, mode=0o600)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps two consoles from choosing one name; the lock dies with its holder."""
        handle = open_lock(private(self._root) / ".lock")
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        # Never without a limit: a holder that is stopped would hold up all others for ever,
        # deaf to signals within an event loop.
        ends = self._clock() + LOCK_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._clock() >= ends:
                    raise EngineError(
                        f"another specdeck has held {self._root / '.lock'} for {LOCK_S:.0f} s",
                        remedy="continue or end it, if it is stopped, and try again",
                    ) from None
                self._sleep(_LOCK_POLL_S)
            except OSError:
                return  # a file system without locks: better no guard than no engine
            else:
                return


def private_file(token_file: Path) -> Path:
    """Where the arguments with a secret lie, of the engine whose admin token is in `token_file`."""
    return token_file.with_name(f"{token_file.name}.yaml")  # vLLM goes by the ending


def port_conflict(port: int, by: Record) -> UsageError:
    """The error of a port that another engine of specdeck has."""
    doing = "runs" if by.ready is not None else "is starting"
    return UsageError(
        f"port {port} is {by.name}'s, which {doing}", remedy="choose another with --port"
    )


def slug(name: str) -> str:
    """A name that is short, safe as a file's and easy to type.

    >>> slug("meta-llama/Llama-3.1-8B"), slug("/models/Target v2"), slug("//")
    ('llama-3.1-8b', 'target-v2', 'engine')
    """
    last = name.rstrip("/").rpartition("/")[2].lower()
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in last)
    return safe.strip("-.")[:40] or "engine"


def address(text: str) -> tuple[str, int] | None:
    """Host and port that a URL, `host:port` or bare port means; None when it is none of them.

    >>> address("http://localhost:8000/"), address("127.0.0.1:8000"), address("8000")
    (('127.0.0.1', 8000), ('127.0.0.1', 8000), ('127.0.0.1', 8000))
    >>> address("demo") is None
    True
    """
    if text.isdecimal():
        text = f"127.0.0.1:{text}"
    try:
        parts = urlsplit(text if "//" in text else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if host is None or (port is None and not parts.scheme):
        return None
    local = host in ("localhost", "0.0.0.0", "::1", "::", "127.0.0.1")
    return ("127.0.0.1" if local else host, port or (443 if parts.scheme == "https" else 80))


def _read(path: Path) -> Record | Unreadable:
    """A record decides where keys and tokens go, and which processes are ended: where others can
    write in the folder, theirs is none.
    """
    try:
        record = Record.from_json(loads(read_file(path, most=_LARGEST, own=True)))
    except OSError as error:
        return Unreadable(path, error.strerror or "cannot be read")
    except ValueError as error:
        return Unreadable(path, " ".join(str(error).split()))
    if record.name != path.stem:
        return Unreadable(path, "names another engine than its file")
    return record
