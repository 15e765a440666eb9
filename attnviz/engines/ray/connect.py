"""Connecting to a Ray cluster, or starting one on this machine.

Ray is kept quiet: nothing on standard output, no dashboard, no usage statistics, no log lines of
its workers. What a user must know arrives as events and errors of this package.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from attnviz.domain.process import available_cores
from attnviz.domain.requests import ClusterRequest
from attnviz.errors import UsageError

DEFAULT_CPUS = 4
"""CPU cores per model by default: many models with few threads beat few with many."""

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    # Ray reports dead workers on standard output, which belongs to the results.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
}


@dataclass(frozen=True)
class Pool:
    """The resources of a cluster for the models of a run.

    ``models``: how many run at a time. ``threads``: CPU threads per model. ``cpus``, ``gpus``: what
    each reserves. Images are read and drawn on the CPU cores that are left.
    """

    nodes: int
    models: int
    threads: int
    cpus: float
    gpus: int

    @property
    def device(self) -> str:
        """Where the models run."""
        return "cuda" if self.gpus else "cpu"


class Starting:
    """A connection that is being established in the background."""

    def __init__(self, request: ClusterRequest) -> None:
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="ray")
        self._connected = self._starter.submit(_connect, request)

    def ray(self) -> Any:
        """The module ``ray``, connected.

        Raises:
            UsageError: Ray is not installed, or no cluster answers at the address.
        """
        return self._connected.result()[0]

    def close(self) -> None:
        """Wait for the connection and close it, unless it existed before."""
        if self._connected.exception() is None:
            ray, own = self._connected.result()
            if own:
                ray.shutdown()
        self._starter.shutdown()


@contextmanager
def cluster(request: ClusterRequest) -> Iterator[Starting]:
    """Ray, starting in the background. An existing connection is used, and left open."""
    starting = Starting(request)
    try:
        yield starting
    finally:
        starting.close()


def _connect(request: ClusterRequest) -> tuple[Any, bool]:
    """Ray with a connection, and whether it is a new one."""
    ray = _import()
    if ray.is_initialized():
        if request.address is not None:
            _check_same(ray, request.address)
        return ray, False
    options: dict[str, Any] = {
        "address": request.address or "local",
        "log_to_driver": False,
        "logging_level": logging.CRITICAL,
        "configure_logging": True,
    }
    if request.address is None:
        options |= {"include_dashboard": False, "num_cpus": available_cores()}
    try:
        with _standard_error_closed(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(**options)
    except Exception as error:
        # Ray raises a bare Exception where a part of a cluster does not start in time.
        if request.address is None:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UsageError(
                f"--engine ray: no cluster can be started here ({reason})", "use --engine local"
            ) from error
        raise UsageError(
            f"--ray-address: no Ray cluster answers at {request.address}",
            "give the HOST:PORT that 'ray start --head' printed; if it mentioned token "
            "authentication, set RAY_AUTH_MODE=token as well",
        ) from error
    return ray, True


@contextmanager
def _standard_error_closed() -> Iterator[None]:
    """Discard what is written to file descriptor 2: Ray's core announces there that it is quiet.

    Replacing ``sys.stderr`` would not help, since the core does not write through Python.
    """
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_same(ray: Any, address: str) -> None:
    connected = ray.get_runtime_context().gcs_address
    if address not in ("auto", connected):
        raise UsageError(
            f"--ray-address: this process is connected to {connected}, not to {address}"
        )


def _import() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
            import ray.data
    except ImportError as error:
        raise UsageError(
            f"--engine ray needs Ray Data, which is not installed ({error.name or error})",
            "pip install 'attnviz[ray]'",
        ) from error
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    return ray


def pool(ray: Any, request: ClusterRequest, device: str) -> Pool:
    """How many models the cluster can run now: on its GPUs, or on CPU cores if it has none.

    Raises:
        UsageError: The cluster does not have the device, or not enough cores for one model.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            f"--device {device}: Ray gives every model a device of its own",
            "use --device auto, cpu or cuda",
        )
    if device == "cuda" and not gpus:
        raise UsageError("--device cuda: the cluster has no GPU", "use --device auto or cpu")
    if gpus and device != "cpu":
        return Pool(len(nodes), gpus, threads=1, cpus=1, gpus=1)
    cores = [int(node.get("CPU", 0)) for node in nodes]
    threads = request.cpus_per_model or max(1, min(DEFAULT_CPUS, max(cores)))
    models = sum(count // threads for count in cores)
    if not models:
        raise UsageError(
            f"--cpus-per-model {threads}: no machine of the cluster has so many, "
            f"the largest has {max(cores)}",
            f"give at most {max(cores)}",
        )
    # Each model leaves one of its cores for reading and drawing, or half of its only one.
    return Pool(len(nodes), models, threads, cpus=max(0.5, threads - 1), gpus=0)
