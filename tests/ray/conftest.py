"""A real Ray cluster of two nodes on this machine, shared by the tests of a module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers import checkpoints
from tests.helpers.photos import save_scene

COUNT = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Ray's own code warns in this process about its settings and about sockets it leaves open.
    ignored = ("ResourceWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for kind in ignored:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of two CPUs each; runs in this process are connected to them."""
    try:
        from attnviz.engines.ray import connect

        ray = connect._import()
    except Exception as error:
        if os.environ.get("ATTNVIZ_REQUIRE_RAY"):
            raise
        pytest.skip(f"Ray Data is not installed: {error}")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        node.pop("include_dashboard")
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="CRITICAL")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 4 layers, 2 heads and patches of 8; native size 32."""
    return checkpoints.save(tmp_path_factory.mktemp("weights") / "tiny.pth", checkpoints.original())


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small images of two sizes, one in a sub-folder, and a broken file."""
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(COUNT - 1):
        save_scene(folder / f"{number}.png", 40, 40 if number % 3 else 56)
    save_scene(folder / "deep" / "er" / "3.png", 40, 40)
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    return folder
