"""``python -m tests.helpers.fork_server``: runs imports once, then forks for each request.

A forked process does what a fresh one would do from there on: its own environment, folder, standard
streams and session, the program that was asked for as ``__main__``, and the interpreter's ordinary
end. Only variables that are read by what is imported already come too late.

``tests.helpers.warm`` is the other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
import warnings
from typing import Any

HEADER_BYTES = 8
"""A request begins with its length."""


def serve(connection: socket.socket, imports: str) -> dict[str, Any]:
    """Fork for each request. Returns in the forked processes only: what to run there."""
    exec(imports, {})
    while True:
        _reap()
        header, descriptors, _, _ = socket.recv_fds(connection, HEADER_BYTES, 4)
        if not header:
            sys.exit()
        length = int.from_bytes(header, "big")
        request = json.loads(connection.recv(length, socket.MSG_WAITALL))
        if _fork() == 0:
            connection.close()
            if "imports" in request:
                return serve(socket.socket(fileno=descriptors[0]), request["imports"])
            _supervise(*descriptors)
            return request
        for descriptor in descriptors:
            os.close(descriptor)


def _reap() -> None:
    """Take note of the supervisors that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _supervise(status: int, *streams: int) -> None:
    """Fork again, and tell the new process's id and how it ended. Returns in that process."""
    child = _fork()
    if child == 0:
        os.close(status)
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
            os.close(stream)
        return
    for stream in (0, 1, 2, *streams):
        os.close(stream)  # else who reads them would wait for this process too
    os.write(status, f"{child}\n".encode())
    _, ended = os.waitpid(child, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads: those of numpy's BLAS, which survives a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def run(request: dict[str, Any]) -> None:
    """Become the process that was asked for."""
    if request["new_session"]:
        os.setsid()
    if request["memory_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_limit"],) * 2)
    # The old ones remember what they wrote to: a file, perhaps, where a pipe is now.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = "backslashreplace" if name == "stderr" else "strict"
        mode = "w" if number else "r"
        stream = os.fdopen(number, mode, encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    path = request["path"]
    sys.argv = [path, *request["arguments"]]
    script = sys.modules["__main__"]
    script.__spec__ = None
    script.__file__ = path
    exec(compile(request["source"], path, "exec"), vars(script))


if __name__ == "__main__":
    run(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))
