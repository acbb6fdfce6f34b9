"""The live fingerprint, where every API server process of the engine can read it at once.

The engine core writes one record into a piece of shared memory; an API server compares
one slice of it when it finishes a response. No request asks the engine for it, and the
memory goes with the last process that holds it.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from pathlib import Path

_FORM = struct.Struct("<8s16s32sI")
_SIZE = _FORM.size
_MAGIC = b"specdck1"
_PATIENCE = 64
"""Looks at a record that is being written before the last good one is kept."""


class Board:
    """The engine core's side: one name, seen by all readers from the next moment on."""

    def __init__(self, instance: str) -> None:
        self._instance = instance.encode()
        self._file = os.memfd_create("specdeck-fingerprint")
        os.ftruncate(self._file, mmap.PAGESIZE)
        self._memory = mmap.mmap(self._file, mmap.PAGESIZE)
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"
        """Opens for every process of the same user on the same machine."""

    def write(self, name: str) -> None:
        """Shows `name`; one slice is written, and its checksum tells a torn one."""
        body = _FORM.pack(_MAGIC, self._instance, name.encode(), 0)[:-4]
        self._memory[:_SIZE] = body + struct.pack("<I", zlib.crc32(body))


class Reader:
    """An API server's side."""

    def __init__(self, memory: mmap.mmap, instance: bytes) -> None:
        self._memory = memory
        self._instance = instance
        self._seen = b""
        self._name: str | None = None

    @classmethod
    def of(cls, path: str, instance: str) -> Reader | None:
        """The board at `path` if it is that instance's; None when it cannot be read here."""
        try:
            with Path(path).open("rb") as file:
                memory = mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        reader = cls(memory, instance.encode())
        return reader if reader.name() is not None else None

    def name(self) -> str | None:
        """The name on the board at this moment; None before the first."""
        record = self._memory[:_SIZE]
        if record == self._seen:
            return self._name
        for _ in range(_PATIENCE):
            magic, instance, name, checksum = _FORM.unpack(record)
            if checksum == zlib.crc32(record[:-4]):
                if magic == _MAGIC and instance == self._instance:
                    self._seen, self._name = record, name.rstrip(b"\0").decode()
                break
            record = self._memory[:_SIZE]
        return self._name
