"""Detects opens of files that no table may read, as seen by the kernel, whichever library opens them."""

import ctypes
import os
import struct
import sys
from pathlib import Path

_OPENED_OR_READ = 0x20 | 0x1  # IN_OPEN | IN_ACCESS
_EVENT = struct.Struct("iIII")


class Canary:
    """Files in a folder outside the tables' root, watched by inotify.

    inotify sees the opens of native libraries (Arrow, DuckDB, the object store library), which Python's audit
    hooks do not.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def start(self):
        """Watch the folder from now on."""
        mask = _OPENED_OR_READ
        if self._libc.inotify_add_watch(self._descriptor, os.fsencode(self.folder), mask) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def opened(self):
        """Return the names of the files that were opened since the last call."""
        names = set()
        while True:
            try:
                data = os.read(self._descriptor, 65_536)
            except BlockingIOError:
                return sorted(names)
            position = 0
            while position < len(data):
                _, _, _, length = _EVENT.unpack_from(data, position)
                name = data[position + _EVENT.size : position + _EVENT.size + length]
                names.add(name.rstrip(b"\0").decode(errors="replace") or ".")
                position += _EVENT.size + length

    def close(self):
        """Stop watching."""
        os.close(self._descriptor)


class Opens:
    """The files that Python itself opens or lists outside ``allowed`` while it is ``on``."""

    def __init__(self, allowed):
        self.on = False
        self.found = []
        self._allowed = tuple(os.path.realpath(folder) + "/" for folder in allowed)
        sys.addaudithook(self._see)

    def _see(self, event, arguments):
        if not self.on or event not in ("open", "os.listdir", "os.scandir"):
            return
        path = arguments[0]
        if isinstance(path, bytes | str | os.PathLike):
            if event == "open" and not os.path.isabs(path):  # noqa: PTH117 - a hook must be quick
                return  # relative to an open directory; Canary sees where that is
            text = os.path.normpath(os.path.join("/", os.fsdecode(path)))  # noqa: PTH118 - a hook must be quick
            # Formatting a traceback looks up the source of "<unknown>".
            if not (text + "/").startswith(self._allowed) and not text.startswith("/<"):
                self.found.append(text)
