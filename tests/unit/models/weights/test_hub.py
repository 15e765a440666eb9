"""Weights from a hub that is not there, says no, or is not the hub. Without any network."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from attnviz.errors import CheckpointError
from attnviz.models.weights import hub
from tests.helpers.hub import point_at

REPOSITORY = "timm/vit_small_patch8_224.dino"


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def answering(monkeypatch):
    """A server that gives every request the same answer; the requests that it saw."""
    servers = []

    def start(status, body=b""):
        seen = []

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                seen.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()

            def do_GET(self):
                self.do_HEAD()
                self.wfile.write(body)

            def log_message(self, *_arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        point_at(monkeypatch, server.server_address[1])
        return seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def refusal():
    with pytest.raises(CheckpointError) as caught:
        hub.fetch_weights("dino_vits8", REPOSITORY)
    message = caught.value.message
    assert message.startswith("cannot download the weights of dino_vits8: ")
    assert "\n" not in message
    assert "--checkpoint FILE" in caught.value.hint
    return message


def test_a_refused_connection(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    point_at(monkeypatch, port)
    assert "no connection to 127.0.0.1 (Connection refused)" in refusal()


def test_a_connection_that_stays_silent(monkeypatch):
    monkeypatch.setattr(hub, "REACH_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        point_at(monkeypatch, silent.getsockname()[1])
        assert "did not answer within 0.3 seconds" in refusal()


def test_the_offline_setting_asks_nobody(monkeypatch, answering):
    seen = answering(404)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refusal()
    assert seen == []


def test_a_hub_that_does_not_have_it(answering):
    seen = answering(404)
    refusal()
    assert seen
    assert all(path.startswith(f"/{REPOSITORY}/resolve/main/") for path in seen)


def test_a_page_that_is_not_the_hub(answering):
    """What a network with a login page answers."""
    seen = answering(200, b"<html>please log in</html>")
    refusal()
    assert seen
