"""Repositories of the Hugging Face hub without the hub: a cache on disk, and a small server."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from huggingface_hub import constants, file_download

COMMIT = "c" * 40


def point_at(monkeypatch, port: int) -> None:
    """Let the hub's client ask a server on this machine, and never the real hub."""
    here = f"http://127.0.0.1:{port}"
    monkeypatch.setattr(constants, "ENDPOINT", here)
    # Composed when the client is imported; older clients keep a name of their own for it.
    template = here + "/{repo_id}/resolve/{revision}/{filename}"
    for module in (constants, file_download):
        if hasattr(module, "HUGGINGFACE_CO_URL_TEMPLATE"):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def put_into_cache(cache: Path, repository: str, files: dict[str, bytes]) -> Path:
    """A repository as the hub's client stores it; the folder of the snapshot."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "blobs").mkdir(exist_ok=True)
    snapshot.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for name, content in files.items():
        blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
        blob.write_bytes(content)
        link = snapshot / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path("../../blobs") / blob.name)
    return snapshot


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@contextmanager
def serving(repositories: dict[str, dict[str, bytes]], *, gated: tuple[str, ...] = ()):
    """A server that answers the hub's client as the hub does; its port, and the paths asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> bytes | None:
            asked.append(f"{self.command} {self.path}")
            repository, _, rest = self.path.strip("/").partition("/resolve/")
            revision, _, name = rest.partition("/")
            content = repositories.get(repository, {}).get(name)
            reasons = {
                "GatedRepo": repository in gated,
                "RepoNotFound": repository not in repositories,
                "RevisionNotFound": revision not in ("main", COMMIT),
                "EntryNotFound": content is None,
            }
            reason = next((code for code, applies in reasons.items() if applies), None)
            if reason is not None:
                return self.refuse(403 if reason == "GatedRepo" else 404, reason)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            return content

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            content = self.answer()
            if content is not None:
                self.wfile.write(content)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        server.server_close()
