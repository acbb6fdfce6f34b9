"""The file of one black box: its tables, its lock, and how a foreign one is opened.

SQLite in WAL mode. `PRAGMA user_version` is the number of its schema; a newer one is refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from specdeck.engine.database_files import BESIDE, NEW, beside, is_open, keep_names
from specdeck.engine.errors import ConfigError, Place, UsageError
from specdeck.engine.files import is_kernels, open_file, open_lock, refuse_foreign
from specdeck.engine.paths import private
from specdeck.engine.scratch import scratch_folder
from specdeck.engine.store.distrust import distrust, limit_time
from specdeck.engine.store.full_disk import is_disk_full

SCHEMA: Final = 1
_MAGIC: Final = 0x53704431
"""SQLite's `application_id` of a black box."""

TABLES: Final = {
    "facts": "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "blocks": "CREATE TABLE blocks (first_n INTEGER PRIMARY KEY, last_n INTEGER NOT NULL,"
    " base INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL, breaks INTEGER NOT NULL,"
    " data BLOB NOT NULL)",
    "block_times": "CREATE INDEX block_times ON blocks (first, last, last_n, breaks)",
    "rows": "CREATE TABLE rows (n INTEGER PRIMARY KEY, t REAL NOT NULL, template TEXT,"
    " numbers BLOB NOT NULL)",
    "minutes": "CREATE TABLE minutes (minute INTEGER PRIMARY KEY, count INTEGER NOT NULL,"
    " seconds REAL NOT NULL, generated REAL NOT NULL, low_tokens REAL, high_tokens REAL,"
    " drafted REAL NOT NULL, accepted REAL NOT NULL, low_acceptance REAL, high_acceptance REAL)",
    "events": "CREATE TABLE events (n INTEGER PRIMARY KEY, t REAL NOT NULL, kind TEXT NOT NULL,"
    " text TEXT NOT NULL, tone TEXT NOT NULL, label TEXT, origin TEXT, who TEXT, reason TEXT)",
    "event_times": "CREATE INDEX event_times ON events (t, n)",
    "cohorts": "CREATE TABLE cohorts (n INTEGER PRIMARY KEY, t REAL NOT NULL,"
    " whole INTEGER NOT NULL, data BLOB NOT NULL)",
    "cohort_times": "CREATE INDEX cohort_times ON cohorts (t, n)",
    "documents": "CREATE TABLE documents (n INTEGER PRIMARY KEY, t REAL NOT NULL,"
    " kind TEXT NOT NULL, data BLOB NOT NULL)",
    "document_times": "CREATE INDEX document_times ON documents (kind, t, n)",
}
"""What makes each table and index of the file, and what a foreign file is held against."""

PATIENCE_S: Final = 2.0
_LOCK_TRIES: Final = 10
_COPY_TRIES: Final = 5
_LARGEST_COPY: Final = 4_000_000_000
"""Bytes of a file that is copied to be read: eight times what a black box has if nobody asked for
more."""
_LOG_HEAD: Final = 32
"""Bytes of a log's header, with a number of its own."""
_PIECE: Final = 1 << 20
_ALONE: Final = "mode=ro&immutable=1"
"""Nothing is opened but the file itself, and nothing is made in its place."""
LARGEST_VALUE: Final = 4_000_000
"""Bytes of one value that is read."""
_OPENING_S: Final = 1.0
"""The longest that its list of tables may take: SQLite reads all of it before any question, and
takes the square of their number."""
_OPENING_STEPS: Final = 1_000
"""Some hundred tables; a black box has fourteen, and is never asked what time it is."""
_LONGEST_STATEMENT: Final = 100_000
"""Bytes of SQL, in a file as well."""

REMEDY: Final = "move it out of the way"


def open_for_writing(path: Path) -> sqlite3.Connection:
    """The file at `path`, made where there is none; its folder has to exist.

    Raises ConfigError where it cannot be written or was not written by a black box, UsageError
    for one of a newer specdeck.
    """
    with translate_errors(path):
        # Not opened where it exists: closing it again would drop this process's locks on it.
        with suppress(FileExistsError):
            os.close(os.open(path, NEW, 0o600))
        _refuse_foreign_files(path, ("", *BESIDE))
        is_new = _size_of(path) == 0
        db = sqlite3.connect(
            path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False
        )
    try:
        with translate_errors(path), keep_names(path):
            _refuse_foreign_files(path, BESIDE)
            _harden(db)
            if is_new:
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
            # A commit is safe from a kill without waiting for the disk.
            db.execute("PRAGMA synchronous = NORMAL")
            with transaction(db):
                if not _names(db):
                    for statement in TABLES.values():
                        db.execute(statement)
                    db.execute(f"PRAGMA application_id = {_MAGIC}")
                    db.execute(f"PRAGMA user_version = {SCHEMA}")
            _check_schema(db, path)
            _refuse_foreign_files(path, BESIDE)  # what came beside it meanwhile is open now
    except BaseException:
        db.close()
        raise
    return db


def _refuse_foreign_files(path: Path, endings: Iterable[str]) -> None:
    """Raises OSError where one of these files can be written by another user.

    SQLite believes the log and maps its index: who cuts that one short ends the process (SIGBUS).
    """
    for ending in endings:
        refuse_foreign(beside(path, ending))


def open_for_reading(path: Path) -> Reader:
    """The file at `path`, whoever wrote it; nothing is written to it, and once it is closed nothing
    lies beside it that did not before.

    A file that lost its end opens as far as it goes. One that another user can write, or lay a log
    beside, is copied where it may be written at the same time: it stays as it was then. Raises
    ConfigError for what is no file of a black box, UsageError for one of a newer specdeck.
    """
    with translate_errors(path):
        if not stat.S_ISREG(path.stat().st_mode) or is_kernels(path):
            raise ConfigError("not a regular file", place=Place(path))
        place = path.resolve()
        first = _choose_options(place)
        is_own = _is_own(place)
        if is_own:
            _refuse_foreign_files(place, BESIDE)
        if not is_own or _may_be_given_a_log(place):
            return _open_foreign(path, place, is_copied=first != _ALONE)
    # As it is; one that lies in a folder that cannot be written to, without what may not have
    # been taken over from its log.
    db = _open_first(path, place, (first, "mode=ro", _ALONE))
    try:
        with translate_errors(path):
            _refuse_foreign_files(place, BESIDE)
    except BaseException:
        db.close()
        raise
    return db


def _open_foreign(path: Path, place: Path, *, is_copied: bool) -> Reader:
    """A file of another user's or that another can write: as it is where nothing but itself is
    opened, else a copy, which is gone from its folder once it is open."""
    if not is_copied:
        return _open_first(path, place, (_ALONE,))
    with scratch_folder("specdeck-blackbox") as folder, translate_errors(folder):
        db = _open_first(path, _copy(place, folder), ("mode=rw", _ALONE))
    db.copied = True
    return db


def _open_first(path: Path, place: Path, ways: Sequence[str]) -> Reader:
    """`place`, which is told as `path`, in the first way that can be; in the last one also where
    it lost its end. Raises ConfigError."""
    failure: Exception | None = None
    for options, pragma in (*((one, None) for one in ways), (ways[-1], "writable_schema")):
        try:
            return _open(path, place, options, pragma)
        except (sqlite3.Error, UnicodeError) as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise ConfigError("not the tables of a black box", place=Place(path)) from None
            failure = failure or error
    with translate_errors(path, remedy=None):  # it may be anything that somebody named
        raise failure or sqlite3.DatabaseError("cannot be opened")


def _choose_options(path: Path) -> str:
    """How SQLite leaves nothing beside a file that it reads, and misses nothing of its log.

    To read a file in WAL mode it makes a log and an index of it, and only a connection that may
    write removes them again, which the last one does on closing.
    """
    if _size_of(beside(path, "-wal")):
        return "mode=ro"
    if not beside(path, ".lock").exists():
        return _ALONE  # no recorder has ever written it there: a copy, or a slice
    # A recorder may begin at any moment. There is nothing that a last connection would take over.
    is_ours = path.stat().st_uid == os.geteuid() and not beside(path, "-journal").exists()
    return "mode=rw" if is_ours else "mode=ro"


def _is_own(place: Path) -> bool:
    """Whether nobody else can write the file; raises OSError.

    Of this process's own no copy is made: closing the file again would drop its writer's locks.
    """
    about = place.stat()
    return about.st_uid == os.geteuid() and not about.st_mode & stat.S_IWOTH


def _may_be_given_a_log(place: Path) -> bool:
    """Whether another user may lay a log beside an own file before it is opened: SQLite would write
    that into the file. Where a writer has laid its own there, others cannot; raises OSError."""
    return is_open(place.parent) and not all(
        beside(place, ending).exists() for ending in ("-wal", "-shm")
    )


def _copy(place: Path, folder: Path) -> Path:
    """The file and its log in `folder`, as they were at one moment; raises OSError, ConfigError.

    What is taken over from the log meanwhile stays in it until the next one is begun in its place.
    """
    copy, log = folder / "box.db", beside(place, "-wal")
    if os.path.lexists(log) and not stat.S_ISREG(log.lstat().st_mode):
        raise ConfigError("not a regular file", place=Place(log))
    room = min(_LARGEST_COPY, shutil.disk_usage(folder).free // 2)
    if _size_of(place) + _size_of(log) > room:
        raise ConfigError(
            f"another user can write it, and {folder.parent} has no room for a copy",
            place=Place(place), remedy="set TMPDIR to a folder with more room",
        )  # fmt: skip
    owner = place.stat().st_uid
    for _ in range(_COPY_TRIES):
        head = _read_start(log)
        _copy_start(place, copy, room, owner)
        _copy_start(log, beside(copy, "-wal"), room, owner)
        if _read_start(log) == head:
            return copy
    raise ConfigError("it is written faster than it can be read", place=Place(place))


def _read_start(log: Path) -> bytes:
    """What tells one log from the next in the same file; nothing where there is none."""
    try:
        with open_file(log) as file:
            return file.read(_LOG_HEAD)
    except FileNotFoundError:
        return b""


def _copy_start(source: Path, target: Path, most: int, owner: int) -> None:
    """At most so many bytes of it, or nothing where there is no such file.

    Raises OSError where it is not the `owner`'s: its log would be another user's.
    """
    with target.open("wb") as written, suppress(FileNotFoundError), open_file(source) as file:
        if os.fstat(file.fileno()).st_uid != owner:
            raise OSError(errno.EPERM, "another user's file", str(source))
        while most > 0 and (data := file.read(min(most, _PIECE))):
            written.write(data)
            most -= len(data)


class Reader(sqlite3.Connection):
    """Removes, when it is closed, the index of a log that it was the first to read."""

    made: Path | None = None
    copied = False
    """Whether this is a copy, which nobody writes on."""

    def close(self) -> None:
        """Closes it; may be called again."""
        super().close()
        if self.made is not None:
            with suppress(OSError):
                self.made.unlink()


def _find_made(path: Path, options: str) -> Path | None:
    """What opening leaves behind: the index of a log that came along with a copy. Recorders, which
    share theirs with every reader, have none of it; other readers go on with what they have open.
    """
    index = beside(path, "-shm")
    is_made = options == "mode=ro" and not index.exists()
    return index if is_made and not beside(path, ".lock").exists() else None


def find_last_write(path: Path) -> float:
    """Unix time at which a black box, or its log, was written last; raises OSError."""
    changed = path.lstat().st_mtime
    with suppress(OSError):
        changed = max(changed, beside(path, "-wal").lstat().st_mtime)
    return changed


def _size_of(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _open(path: Path, place: Path, options: str, pragma: str | None) -> Reader:
    made = _find_made(place, options)
    db = sqlite3.connect(
        f"{place.as_uri()}?{options}", factory=Reader,
        uri=True, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False,
    )  # fmt: skip
    db.made = made
    try:
        with limit_time(db, _OPENING_S, _OPENING_STEPS):
            _harden(db)
            if pragma is not None:
                db.execute(f"PRAGMA {pragma} = ON")
            db.execute("PRAGMA query_only = ON")
            _check_schema(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _harden(db: sqlite3.Connection) -> None:
    distrust(db)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    db.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_STATEMENT)


def _names(db: sqlite3.Connection) -> dict[str, str | None]:
    rows = db.execute("SELECT name, sql FROM sqlite_master LIMIT 100").fetchall()
    return {str(name): sql for name, sql in rows if not str(name).startswith("sqlite_autoindex")}


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Raises unless the file has the tables of a black box, made by these very statements."""
    (magic,) = db.execute("PRAGMA application_id").fetchone()
    if magic != _MAGIC:
        raise ConfigError("not a black box of specdeck", place=Place(path))
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise UsageError(
            f"{path} was written by a newer specdeck (schema {version}, this one {SCHEMA})",
            remedy="update specdeck",
        )
    if version != SCHEMA or _names(db) != TABLES:
        raise ConfigError("not the tables of a black box", place=Place(path))


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Several statements that hold together or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


@contextmanager
def translate_errors(path: Path, remedy: str | None = REMEDY) -> Iterator[None]:
    """What SQLite and the system raise within it as a ConfigError: one line; `remedy` is for a file
    that is damaged, or none of ours."""
    try:
        yield
    except sqlite3.Error as error:
        if is_disk_full(error, path.parent):
            raise _disk_full(path) from error
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        is_damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        raise ConfigError(
            str(error), place=Place(path), remedy=remedy if is_damaged else None
        ) from error
    except UnicodeError as error:  # SQLite's own words, which quote what is damaged
        raise ConfigError("its tables are damaged", place=Place(path), remedy=remedy) from error
    except OSError as error:
        if is_disk_full(error, path.parent):
            raise _disk_full(path) from error
        raise ConfigError(
            (error.strerror or str(error)).lower(),
            place=Place(Path(error.filename) if isinstance(error.filename, str) else path),
            remedy=remedy if error.errno == errno.EPERM else None,
        ) from error


def _disk_full(path: Path) -> ConfigError:
    return ConfigError("the disk is full", place=Place(path), remedy="make room")


def take_lock(path: Path) -> int | None:
    """The lock of the writer of the file at `path`, as a descriptor; None while another has it.

    The system releases it when the process ends. Raises ConfigError where there can be none.
    """
    lock = beside(path, ".lock")
    with translate_errors(lock):
        private(path.parent)
        for _ in range(_LOCK_TRIES):
            file = open_lock(lock)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return None
            except OSError:
                return file  # a file system without locks: better a second writer than none
            if is_at(os.fstat(file), lock):
                return file
            os.close(file)  # whoever had it has removed it: the next one makes another
    return None


def is_at(about: os.stat_result, path: Path) -> bool:
    """Whether the very file that `about` is of still lies at `path`, not another one or nothing.

    Raises OSError where that cannot be told.
    """
    try:
        return os.path.samestat(about, path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return False


class OpenFiles:
    """The files that a writer has open, whatever is done to their names meanwhile."""

    def __init__(self, path: Path) -> None:
        """Those of the file at `path`, once something was written to it. Raises OSError."""
        self._path = path
        self._about = path.lstat()
        self._log = [(one, one.lstat()) for one in (beside(path, "-wal"), beside(path, "-shm"))]

    def are_in_place(self) -> bool:
        """Whether the file still lies at its path; True where that cannot be told."""
        try:
            return is_at(self._about, self._path)
        except OSError:
            return True

    def give_up(self, db: sqlite3.Connection) -> None:
        """Writes into the file, wherever it lies by now, what is only in its log, and removes the
        log where it was left behind.

        SQLite does neither for a file that was moved. It would take the log for that of the next
        file there: what is no part of that one would be read into it.
        """
        with suppress(sqlite3.Error):
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for one, about in self._log:
            with suppress(OSError):
                if is_at(about, one):
                    one.unlink()
