"""What specdeck remembers beyond a session: one SQLite file that processes share.

Its schema is the sum of `migrations/NNN.sql`; `PRAGMA user_version` is the number of the
last one that the file has seen.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from specdeck.engine.database_files import BESIDE, NEW, beside, keep_names
from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.files import is_kernels, open_lock, refuse_foreign
from specdeck.engine.paths import private
from specdeck.engine.store.distrust import distrust, limit_time
from specdeck.engine.store.full_disk import is_disk_full
from specdeck.engine.text import format_count

PATIENCE_S = 2.0
"""How long another process may hold the file before a write gives up."""
_PAUSE_S = 0.01

_QUESTION_S, _WRITE_S = 10.0, 30.0
"""The longest that a question, and what is written together, may take: no honest store comes near
it, and what does is deaf to signals."""
_NOT_OURS = (
    "SELECT type, name FROM sqlite_master"
    " WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%' LIMIT 1"
)

_OPENED_BY_SQLITE = ("", *BESIDE)
"""What the names of the files end in that SQLite opens of one database."""
_NOTHING_BESIDE = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY
)  # fmt: skip
"""What SQLite says where it can make no file beside a database."""
_T = TypeVar("_T")


def read_migrations() -> dict[int, str]:
    """The SQL of every migration by its number, in ascending order."""
    folder = files("specdeck.engine.store").joinpath("migrations")
    found = {int(f.name[:3]): f for f in folder.iterdir() if f.name.endswith(".sql")}
    return {number: found[number].read_text(encoding="utf-8") for number in sorted(found)}


class StoreHeld(UsageError):
    """Another process has the file for itself, for a moment or for as long as it is stopped."""


class Store:
    """Opens, or makes, the file at `path`; raises SpecdeckError when it cannot be used.

    A file of an older specdeck is migrated, one of a newer specdeck is refused as a
    UsageError and left as it is. A console goes on without a store: what raises here is a
    notice there.
    """

    def __init__(
        self,
        path: Path,
        *,
        patience_s: float = PATIENCE_S,
        migrations: Mapping[int, str] | None = None,
    ) -> None:
        self._path = path
        self._patience_s = patience_s
        self._locks: dict[str, int] = {}
        self.left_out: list[str] = []
        """What was found that cannot be read, a line for each time and kind."""
        with self._translate_errors():
            private(path.parent)
            self._refuse_foreign_link()
            self._refuse_foreign_files()
            # Created for its owner only; SQLite gives the same mode to what lies beside it. Not
            # opened where it exists: closing it again would drop the locks that another store of
            # this process has on it, and the next process to end would delete its log.
            with suppress(FileExistsError):
                os.close(os.open(os.path.realpath(path), NEW, 0o600))
        self._migrations = read_migrations() if migrations is None else migrations
        self._failure: UsageError | None = None
        """Why nothing can be written, where the file can be read alone."""
        try:
            self._db = self._open()
        except UsageError as error:
            self._db = self._open_alone(error)
            self._failure = error

    def _open(self) -> sqlite3.Connection:
        """The file for reading and writing, of the newest schema."""
        with self._translate_errors():
            # Every statement is its own transaction.
            db = sqlite3.connect(self._path, timeout=self._patience_s, isolation_level=None)
        try:
            with self._translate_errors(), keep_names(Path(os.path.realpath(self._path))):
                self._refuse_foreign_files()
                with limit_time(db):
                    # One damaged text must not end the reading of all, either.
                    distrust(db)
                    _refuse_views(db)
                self._migrate(db)
                self._refuse_foreign_files()  # what came beside it meanwhile is open now
        except SpecdeckError:
            db.close()
            raise
        return db

    def _open_alone(self, failure: UsageError) -> sqlite3.Connection:
        """The file without what SQLite makes beside it to read it: there is no room for that, or
        its folder cannot be written to. Raises `failure` where more is told in its log."""
        code = getattr(failure.__cause__, "sqlite_errorcode", 0) & 0xFF
        place = Path(os.path.realpath(self._path))
        log = beside(place, "-wal")
        if code not in _NOTHING_BESIDE or (log.exists() and log.stat().st_size):
            raise failure
        db = sqlite3.connect(
            f"{place.as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
        )
        try:
            with self._translate_errors(), limit_time(db):
                distrust(db)
                _refuse_views(db)
                if _read_version(db) != max(self._migrations):
                    raise failure
        except SpecdeckError:
            db.close()
            raise failure from failure.__cause__
        return db

    def _open_again(self) -> None:
        """Tries whether it can be written by now, where it could only be read alone."""
        try:
            db = self._open()
        except UsageError as error:
            self._failure = error
        else:
            self._db.close()
            self._db, self._failure = db, None

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """The file, for several statements that hold together or not at all."""
        if self._failure is not None:
            self._open_again()
            if write and self._failure is not None:
                raise self._failure
        with self._translate_errors(), _transaction(self._db, write=write) as db:
            yield db

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Within it nothing waits for another process: what is held is so at once."""
        with self._translate_errors():
            self._db.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            with self._translate_errors():
                self._db.execute(f"PRAGMA busy_timeout = {round(self._patience_s * 1e3)}")

    def require_writable(self) -> None:
        """Raises SpecdeckError where nothing can be written now."""
        with self.transaction() as db:  # the same again: a page of it takes room on the disk
            db.execute(f"PRAGMA user_version = {_read_version(db)}")

    def read_rows(
        self,
        rows: Iterable[tuple[Any, ...]],
        read: Callable[[tuple[Any, ...]], _T],
        *,
        what: str,
        limit: int,
    ) -> tuple[_T, ...]:
        """The first `limit` of `rows` that `read` can make something of.

        The others, called `what`, are told in `left_out`: one damaged row hides no other.
        """
        found: list[_T] = []
        reasons: list[str] = []
        for row in rows:
            if len(found) >= limit:
                break
            try:
                found.append(read(row))
            except (ValueError, TypeError) as error:
                reasons.append(str(error))
        if reasons and (line := left_out_line(what, reasons)) not in self.left_out:
            self.left_out.append(line)
        return tuple(found)

    def take_lock(self, name: str) -> bool:
        """Whether the lock `name` is this store's until it is released or the store closed.

        False while another store has it. The system releases it when the process ends.
        """
        if name in self._locks:
            return True
        with self._translate_errors():
            file = open_lock(self._lock_path(name))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return False
            except OSError:
                pass  # a file system without locks: better no guard than no check
        self._locks[name] = file
        return True

    def release_lock(self, name: str) -> None:
        """Gives the lock up for good and removes its file; without effect when not held."""
        if (file := self._locks.pop(name, None)) is not None:
            with self._translate_errors():
                self._lock_path(name).unlink(missing_ok=True)
                os.close(file)

    def mark_lock(self, name: str) -> None:
        """Leaves a mark in a lock of this store's for whoever takes it next.

        It is there also where the file is held, and takes no room on a disk that is full.
        """
        if (file := self._locks.get(name)) is not None:
            with self._translate_errors():
                os.ftruncate(file, 1)

    def is_marked(self, name: str) -> bool:
        """Whether a lock of this store's was left with a mark."""
        file = self._locks.get(name)
        return file is not None and os.fstat(file).st_size > 0

    def close(self) -> None:
        """Closes the file and gives up the locks, whose files stay for the next process."""
        for file in self._locks.values():
            os.close(file)
        self._locks.clear()
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _migrate(self, db: sqlite3.Connection) -> None:
        newest = max(self._migrations)
        version = _read_version(db)
        if version < 0:
            raise ValueError(f"its schema is {version}")
        if version < newest:
            self._switch_to_wal(db)
            with _transaction(db):
                version = _read_version(db)  # another process may have migrated it meanwhile
                for number in range(version + 1, newest + 1):
                    for statement in _statements(self._migrations[number]):
                        db.execute(statement)
                    db.execute(f"PRAGMA user_version = {number}")
        if version > newest:
            raise UsageError(
                f"{self._path} was written by a newer specdeck"
                f" (schema {version}, this one {newest})",
                remedy="update specdeck, or set SPECDECK_HOME to another folder",
            )

    def _switch_to_wal(self, db: sqlite3.Connection) -> None:
        """Waits for who makes the same file at the same time: SQLite itself gives up at once."""
        ends = time.monotonic() + self._patience_s
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not _is_held(error) or time.monotonic() > ends:
                    raise
            time.sleep(_PAUSE_S)

    def _refuse_foreign_link(self) -> None:
        """A link of another user's leads to whatever file of this user's that one has chosen."""
        if self._path.is_symlink() and self._path.lstat().st_uid not in (0, os.geteuid()):
            raise OSError("it is a link of another user")

    def _refuse_foreign_files(self) -> None:
        """A pipe, a device or the kernel's own would be waited for, deaf to signals; so would one
        in the place of what SQLite opens beside its file. Another user's would have the audit log
        of this one, and tell this one what to believe."""
        place = Path(os.path.realpath(self._path))
        for ending in _OPENED_BY_SQLITE:
            path = beside(place, ending)
            which = f"{path.name} beside it" if ending else "it"
            if is_kernels(path):
                raise OSError(f"{which} is no regular file")
            # Looked at once: another process that ends removes what lies beside the file.
            with suppress(FileNotFoundError):
                about = path.stat()
                if not stat.S_ISREG(about.st_mode):
                    raise OSError(f"{which} is no regular file")
                if about.st_uid != os.geteuid():
                    owner = _find_name(about.st_uid)
                    raise UsageError(
                        f"{self._path} cannot be used: {which} is a file of {owner}",
                        remedy=f"run specdeck as {owner}, or set SPECDECK_HOME to a folder of this"
                        " user's",
                    )
            # What others can write is believed as well, and whoever cuts the index of the log
            # short, which SQLite maps, ends the process (SIGBUS).
            refuse_foreign(path)

    def _lock_path(self, name: str) -> Path:
        return beside(self._path, f"-{name}.lock")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise self._unusable(ValueError("it takes too long to be read")) from error
            if _is_held(error):
                raise StoreHeld(
                    f"{self._path} is held by another process", remedy="try again"
                ) from error
            raise self._unusable(error) from error
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> UsageError:
        if is_disk_full(error, self._path.parent):
            return UsageError(f"{self._path} cannot be used: the disk is full", remedy="make room")
        words: object = error
        if isinstance(error, OSError) and error.filename and error.strerror:
            words = f"{error.filename}: {error.strerror.lower()}"
        return UsageError(
            f"{self._path} cannot be used: {words}",
            remedy="see to the file, or move it out of the way",
        )


def left_out_line(what: str, reasons: Sequence[str]) -> str:
    """What of the store is not shown, and why.

    >>> left_out_line("check", ["it has no end"])
    '1 check in the store cannot be read and is left out: it has no end'
    >>> left_out_line("check", ["it has no end", "a time in it is no number"])
    '2 checks in the store cannot be read and are left out, the first: it has no end'
    """
    count = format_count(len(reasons), what)
    rest = "is left out" if len(reasons) == 1 else "are left out, the first"
    return f"{count} in the store cannot be read and {rest}: {reasons[0]}"


@contextmanager
def _transaction(db: sqlite3.Connection, *, write: bool = True) -> Iterator[sqlite3.Connection]:
    with limit_time(db, _WRITE_S if write else _QUESTION_S):
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield db
        except BaseException:
            if db.in_transaction:  # what takes too long has ended its own
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def _read_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _refuse_views(db: sqlite3.Connection) -> None:
    """A view or a trigger in a table's place runs whatever it says at every question."""
    found = db.execute(_NOT_OURS).fetchone()
    if found is not None:
        raise ValueError(f"there is a {found[0]} {found[1]!r} in it, which is none of specdeck's")


def _find_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _is_held(error: sqlite3.OperationalError) -> bool:
    # What Python's own module raises has no code of SQLite's.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _statements(script: str) -> Iterator[str]:
    """The statements of `script`; `executescript` would commit before the first of them."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
