"""Processes that start in hundredths of a second: forked from one that has done the imports."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tests.helpers.fork_server import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
CONSOLE_SCRIPT = "import sys\nfrom attnviz.__main__ import main\nsys.exit(main())\n"


class ForkedProcess:
    """A running process, with as much of ``subprocess.Popen`` as tests use."""

    def __init__(self, status: int, stdout: int, stderr: int) -> None:
        self.stdout, self.stderr = (
            os.fdopen(stream, encoding="utf-8", errors="surrogateescape")
            for stream in (stdout, stderr)
        )
        self.returncode: int | None = None
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())

    def poll(self, wait_seconds: float = 0.0) -> int | None:
        """The exit code, minus the signal where it died of one; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], wait_seconds)[0]:
            self.returncode = int(self._status.readline())
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        """The exit code.

        Raises:
            TimeoutError: The process still ran, and was killed.
        """
        code = self.poll(timeout)
        if code is None:
            self.kill()
            raise TimeoutError(f"process {self.pid} still ran after {timeout} s")
        return code

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """Read stdout and stderr to their ends, and wait.

        Raises:
            TimeoutError: The process still ran, and was killed, or one that it started has its
                streams open.
        """
        texts = ["", ""]

        def read(number: int, stream: TextIO) -> None:
            texts[number] = stream.read()

        # Daemons: a stream that never ends must not keep pytest.
        readers = [
            threading.Thread(target=read, args=each, daemon=True)
            for each in enumerate((self.stdout, self.stderr))
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise TimeoutError(f"the streams of process {self.pid} were still open")
        self.close()
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """What the kernel does when memory runs out."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the streams; the process is not ended."""
        for stream in (self.stdout, self.stderr, self._status):
            stream.close()


class WarmServer:
    """A process that has run ``imports``, source text, from which others are forked."""

    def __init__(self, imports: str) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.fork_server", str(number), imports],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C in a terminal is for pytest
            )

    def start(
        self,
        *arguments: object,
        source: str = CONSOLE_SCRIPT,
        path: str | Path = "-c",
        cwd: Path | None = None,
        environment: Mapping[str, str | None] | None = None,
        new_session: bool = False,
        memory_limit: int | None = None,
    ) -> ForkedProcess:
        """Run ``source``, as if it stood in the file ``path``, with command line arguments.

        ``environment``: changes of this process's; a variable that is None is taken away.
        """
        changed = os.environ | dict(environment or {})
        request = {
            "arguments": list(map(str, arguments)),
            "source": source,
            "path": str(path),
            "cwd": str(cwd or Path.cwd()),
            "environment": {name: text for name, text in changed.items() if text is not None},
            "new_session": new_session,
            "memory_limit": memory_limit,
        }
        streams = [os.pipe() for _ in range(3)]
        nothing = os.open(os.devnull, os.O_RDONLY)
        status, out, err = (writer for _, writer in streams)
        self._send(request, status, nothing, out, err)
        for descriptor in (status, nothing, out, err):
            os.close(descriptor)
        return ForkedProcess(*(reader for reader, _ in streams))

    def run(
        self, *arguments: object, timeout: float = 120.0, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Start a process and wait for its end."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout)
        return subprocess.CompletedProcess(arguments, process.wait(), out, err)

    def fork(self, imports: str) -> WarmServer:
        """Another server, which has run more imports than this one."""
        server = object.__new__(WarmServer)
        server._connection, theirs = socket.socketpair()
        with theirs:
            self._send({"imports": imports}, theirs.fileno())
        return server

    def _send(self, request: object, *descriptors: int) -> None:
        message = json.dumps(request).encode()
        header = len(message).to_bytes(HEADER_BYTES, "big")
        socket.send_fds(self._connection, [header], descriptors)
        self._connection.sendall(message)

    def close(self) -> None:
        """End the server once what it has started is through."""
        self._connection.close()
        if hasattr(self, "_process"):
            self._process.wait(timeout=30)
