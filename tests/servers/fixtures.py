"""What tests ask for by name: `cluster`, `namespace`, `own_cluster`, `kubeconfig`, and the stores.

Where a program is missing, the test is skipped with one line that says how to get it; with GPUFLEET_REQUIRE_SERVERS=1
it fails with that line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from servers import cluster as clusters
from servers import keeper, namespaces, programs
from servers.alertmanager import running_alertmanager
from servers.cluster import Cluster
from servers.metrics import Series
from servers.namespaces import Namespace
from servers.object_store import ObjectStore, running_object_store
from servers.prometheus import running_prometheus
from servers.victoria import Stream, running_logs, running_metrics


def require(*names: str) -> None:
    """Skip the test, or fail it where nothing may be skipped, unless these programs are there."""
    try:
        for name in names:
            programs.find(name)
    except programs.MissingProgram as missing:
        if programs.REQUIRED:
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of the whole test run, also where pytest-xdist has several processes. Do not break it."""
    require(*clusters.PROGRAMS)
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with keeper.shared_cluster(root / "shared-cluster") as shared:
        yield shared


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    """A namespace of the test's own, and with it nodes, roles and users."""
    made = namespaces.make(cluster)
    yield made
    namespaces.remove(made)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that the test may break."""
    require(*clusters.PROGRAMS)
    with clusters.running_cluster(tmp_path / "cluster") as own:
        yield own


@pytest.fixture
def kubeconfig(namespace: Namespace, tmp_path: Path) -> Path:
    """An admin's kubeconfig whose namespace is the test's."""
    return namespace.cluster.write_kubeconfig(tmp_path / "kubeconfig", namespace=namespace.name)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`prometheus(series, **options)` starts one and gives its URL; options as `running_prometheus` has them."""
    require("prometheus", "promtool")
    with ExitStack() as stack:

        def start(series: Iterable[Series] = (), **options: object) -> str:
            folder = _new_folder(tmp_path, "prometheus")
            return stack.enter_context(running_prometheus(folder, series, **options))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """The URL of an Alertmanager that routes to nobody."""
    require("prometheus-alertmanager")
    with running_alertmanager(_new_folder(tmp_path, "alertmanager")) as url:
        yield url


@pytest.fixture
def victoria_metrics(tmp_path: Path) -> Iterator[Callable[[Iterable[Series]], str]]:
    """`victoria_metrics(series)` starts one and gives its URL."""
    require("victoria-metrics")
    with ExitStack() as stack:

        def start(series: Iterable[Series]) -> str:
            folder = _new_folder(tmp_path, "victoria-metrics")
            return stack.enter_context(running_metrics(folder, series))

        yield start


@pytest.fixture
def victoria_logs(tmp_path: Path) -> Iterator[Callable[[Iterable[Stream]], str]]:
    """`victoria_logs(streams)` starts one and gives its URL."""
    require("victoria-logs")
    with ExitStack() as stack:

        def start(streams: Iterable[Stream]) -> str:
            folder = _new_folder(tmp_path, "victoria-logs")
            return stack.enter_context(running_logs(folder, streams))

        yield start


@pytest.fixture(scope="session")
def one_object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The store of all tests of this process: a second or two of processor time to start."""
    require("moto_server")
    with running_object_store(tmp_path_factory.mktemp("object-store")) as it:
        yield it


@pytest.fixture
def object_store(one_object_store: ObjectStore) -> Callable[[Mapping[str, bytes]], ObjectStore]:
    """`object_store({"dumps/0": b"..."})` is an S3 store with these objects in its bucket, and with nothing else."""

    def hold(objects: Mapping[str, bytes]) -> ObjectStore:
        one_object_store.hold(objects)
        return one_object_store

    return hold


def _new_folder(parent: Path, name: str) -> Path:
    """A folder that is not there yet."""
    taken = len(list(parent.glob(f"{name}*")))
    return parent / (f"{name}-{taken}" if taken else name)
