"""Weights of named models: from the local cache, or from the Hugging Face hub."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

from attnviz.errors import CheckpointError

WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")
REACH_SECONDS = 5.0
"""How long the hub may take to answer before the run gives up: its client waits for minutes."""

_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def fetch_weights(name: str, repository: str, filename: str | None = None) -> Path:
    """The weights file of a hub repository, downloaded unless the local cache has it.

    Raises:
        CheckpointError: Not in the cache and not to be had; the hint says how to go on.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    wanted = (filename,) if filename else WEIGHTS_FILES
    found = cached_weights(repository, wanted)
    if found is not None:
        return found
    hint = (
        "give a file with --checkpoint FILE, try without weights with --random-weights, or "
        f"copy the cache folder of {repository} from a machine that has it"
    )
    problem = _unreachable(repository, wanted[0])
    if problem:
        raise CheckpointError(f"cannot download the weights of {name}: {problem}", hint)
    for place, file in enumerate(wanted):
        try:
            return Path(hf_hub_download(repository, file))
        except LocalEntryNotFoundError as error:
            raise CheckpointError(
                f"cannot download the weights of {name}: the hub did not answer", hint
            ) from error
        except EntryNotFoundError as error:
            if place == len(wanted) - 1:
                raise CheckpointError(
                    f"cannot download the weights of {name}: {repository} has no {file}", hint
                ) from error
        except (HfHubHTTPError, OSError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise CheckpointError(
                f"cannot download the weights of {name}: {reason}", hint
            ) from error
    raise AssertionError("unreachable: the last file returns or raises")


def cached_weights(repository: str, filenames: tuple[str, ...] = WEIGHTS_FILES) -> Path | None:
    """The repository's weights file in the local cache, or None. No network, no torch."""
    from huggingface_hub import try_to_load_from_cache

    for filename in filenames:
        found = try_to_load_from_cache(repository, filename)
        if isinstance(found, str):
            return Path(found)
    return None


def _unreachable(repository: str, filename: str) -> str:
    """Why the hub cannot be reached, or an empty string when it answers, whatever it says."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set and the local cache does not have them"
    address = urlsplit(constants.ENDPOINT)
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    proxied = any(os.environ.get(name) for name in _PROXIES)
    problems = [f"{host} did not answer within {REACH_SECONDS:g} seconds"]

    def reach() -> None:
        try:
            if not proxied:  # the hub's client would try a refused connection several times
                socket.create_connection((host, port), timeout=REACH_SECONDS).close()
            get_hf_file_metadata(hf_hub_url(repository, filename), timeout=REACH_SECONDS)
        except HfHubHTTPError:
            problems[0] = ""  # an answer; the download explains it
        except Exception as error:  # noqa: BLE001 - of the socket, or of the hub's HTTP library
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            problems[0] = f"no connection to {host} ({reason.splitlines()[0]})"
        else:
            problems[0] = ""

    # Looking up a name has no time limit of its own, so the wait happens in a thread.
    thread = threading.Thread(target=reach, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return problems[0]
