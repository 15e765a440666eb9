"""Weights from the Hugging Face hub: from its local cache, or downloaded."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from attnviz.errors import CheckpointError
from attnviz.models.weights.locate import (
    CONFIG,
    PREPROCESSORS,
    WEIGHTS_FILES,
    part_names,
    weights_in,
)

REACH_SECONDS = 5.0
"""How long the hub may take to answer before the run gives up: its client waits for minutes."""

_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")

_NAME = re.compile(
    r"(?P<prefix>hf[-_]hub:)?(?P<id>[A-Za-z0-9][\w.-]*/[\w.-]+)(?:@(?P<revision>[\w./-]+))?"
)


@dataclass(frozen=True)
class Repository:
    """A repository of the hub, ``ORG/NAME``, at a branch, tag or commit; None: the newest."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.revision}" if self.revision else self.name


def repository_of(name: str) -> Repository | None:
    """The repository that ``ORG/NAME`` or ``hf-hub:ORG/NAME`` means, ``@REVISION`` after it or not.

    None for any other name.
    """
    match = _NAME.fullmatch(name)
    return Repository(match["id"], match["revision"]) if match else None


def fetch_weights(name: str, repository: str, filename: str | None = None) -> Path:
    """The weights file of a hub repository, downloaded unless the local cache has it.

    Raises:
        CheckpointError: Neither in the cache nor to be downloaded; the hint says how to go on.
    """
    wanted = (filename,) if filename else WEIGHTS_FILES
    cached = cached_weights(repository, wanted)
    if cached is not None:
        return cached
    with _downloads(f"the weights of {name}", Repository(repository), wanted[0]):
        return _first_of(Repository(repository), wanted)


def fetch_folder(repository: Repository) -> Path:
    """The folder of a repository's config.json and weights, downloaded unless the cache has it.

    Raises:
        CheckpointError: Neither in the cache nor to be downloaded; the hint says how to go on.
    """
    cached = cached_folder(repository)
    if cached is not None:
        return cached
    with _downloads(str(repository), repository, CONFIG):
        folder = _download(repository, CONFIG).parent
        for file in PREPROCESSORS:
            _download_if_there(repository, file)
        _download_weights(repository)
    return folder


def fetch_config(repository: Repository) -> Path:
    """The config.json of a repository, for weights that are elsewhere.

    Raises:
        CheckpointError: As ``fetch_folder``.
    """
    cached = _cached(repository, CONFIG)
    if cached is not None:
        return cached
    with _downloads(str(repository), repository, CONFIG):
        for file in PREPROCESSORS:
            _download_if_there(repository, file)
        return _download(repository, CONFIG)


def cached_weights(repository: str, filenames: Sequence[str] = WEIGHTS_FILES) -> Path | None:
    """The repository's weights file in the local cache, or None. No network, no torch."""
    for filename in filenames:
        path = _cached(Repository(repository), filename)
        if path is not None:
            return path
    return None


def cached_folder(repository: Repository) -> Path | None:
    """The repository's folder in the local cache if config.json and weights are complete there."""
    config = _cached(repository, CONFIG)
    if config is None:
        return None
    try:
        return config.parent if weights_in(config.parent) else None
    except CheckpointError:  # some parts of split weights are still missing
        return None


def _cached(repository: Repository, filename: str) -> Path | None:
    from huggingface_hub import constants

    # Its functions import an HTTP client, for which the list of models would wait in vain.
    folder = constants.REPO_ID_SEPARATOR.join(["models", *repository.name.split("/")])
    if not (Path(constants.HF_HUB_CACHE) / folder).is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(repository.name, filename, revision=repository.revision)
    except HFValidationError:
        return None
    return Path(path) if isinstance(path, str) else None


class _NoSuchFileError(Exception):
    """The repository does not have a file; the message is its name."""


def _download(repository: Repository, filename: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository.name, filename, revision=repository.revision))
    except LocalEntryNotFoundError:  # a kind of the next one, but of a hub that does not answer
        raise
    except EntryNotFoundError as error:
        raise _NoSuchFileError(filename) from error


def _download_if_there(repository: Repository, filename: str) -> Path | None:
    try:
        return _download(repository, filename)
    except _NoSuchFileError:
        return None


def _download_weights(repository: Repository) -> None:
    """The weights, in whichever of the known forms they are there; split ones with all parts."""
    for name in WEIGHTS_FILES:
        if _download_if_there(repository, name) is not None:
            return
        index = _download_if_there(repository, f"{name}.index.json")
        if index is not None:
            for part in part_names(index):
                _download(repository, part)
            return
    _download(repository, WEIGHTS_FILES[-1])  # raises what the caller explains


def _first_of(repository: Repository, filenames: Sequence[str]) -> Path:
    """The first file that the repository has."""
    *others, last = filenames
    for filename in others:
        path = _download_if_there(repository, filename)
        if path is not None:
            return path
    return _download(repository, last)


@contextmanager
def _downloads(what: str, repository: Repository, filename: str) -> Iterator[None]:
    """Ask whether the hub answers, then turn what its client raises into one line.

    Raises:
        CheckpointError: Not reachable, or it does not give the files.
    """
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    problem = _unreachable(repository, filename)
    if problem:
        raise _not_downloaded(what, repository, problem)
    try:
        yield
    except LocalEntryNotFoundError as error:
        raise _not_downloaded(what, repository, "the hub did not answer") from error
    except _NoSuchFileError as error:
        raise _not_downloaded(what, repository, f"{repository} has no {error}") from error
    except GatedRepoError as error:
        raise CheckpointError(
            f"cannot download {what}: {repository.name} is only for users who accepted its terms",
            "accept them on its page of the hub, then log in on this machine: hf auth login",
        ) from error
    except RevisionNotFoundError as error:
        raise _not_downloaded(what, repository, f"there is no {repository}") from error
    except RepositoryNotFoundError as error:
        problem = f"the hub has no {repository.name}, or it is private"
        raise _not_downloaded(what, repository, problem) from error
    except HFValidationError as error:
        raise _not_downloaded(what, repository, "that is not a name of the hub") from error
    except (HfHubHTTPError, OSError) as error:
        lines = str(error).strip().splitlines() or [repr(error)]
        raise _not_downloaded(what, repository, lines[0]) from error


def _not_downloaded(what: str, repository: Repository, problem: str) -> CheckpointError:
    return CheckpointError(
        f"cannot download {what}: {problem}",
        "--model demo draws at once, with the weights of this package; otherwise give a file with "
        "--checkpoint FILE, try without weights with --random-weights, or copy the cache folder of "
        f"{repository.name} from a machine that has it",
    )


def _unreachable(repository: Repository, filename: str) -> str:
    """Why the hub cannot be reached, or an empty string when it answers, whatever it says."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set and the local cache does not have them"
    address = urlsplit(constants.ENDPOINT)
    host, port = address.hostname or "", address.port or (80 if address.scheme == "http" else 443)
    proxied = any(os.environ.get(name) for name in _PROXIES)
    problems = [f"{host} did not answer within {REACH_SECONDS:g} seconds"]
    longer = 2 * REACH_SECONDS  # the wait below ends first, and it alone says "did not answer"

    def reach() -> None:
        try:
            if not proxied:  # the hub's client would try a refused connection several times
                socket.create_connection((host, port), timeout=longer).close()
            url = hf_hub_url(repository.name, filename, revision=repository.revision)
            get_hf_file_metadata(url, timeout=longer)
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
