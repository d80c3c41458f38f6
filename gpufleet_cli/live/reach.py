"""The cluster, reached: our own connection, else kubectl's. If kubectl works from this shell, gpufleet works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import access, kubectl_proxy
from gpufleet_cli.live.access import Access, NotOurWay
from gpufleet_cli.live.api import THREADS, Api
from gpufleet_cli.live.deadline import Deadline

HOW = "kubectl proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The API server, and the line that says where we are and how we came there."""

    api: Api
    told: str


def reached(
    *,
    kubeconfig: str | None,
    context: str | None,
    deadline: Deadline,
    say: Callable[[str], None] | None = None,
) -> Reached:
    """Connected and checked; a SourceError in one line where neither way leads in. `say` hears what
    goes on with the server later."""
    try:
        way = access.connect(kubeconfig=kubeconfig, context=context)
        api = Api(way, deadline=deadline, say=say)
        return Reached(api=api, told=f"{_name(way)} ({api.check()})")
    except NotOurWay as exc:
        found = _through_kubectl(kubeconfig, context, deadline, say)
        if found is None:
            raise
        api, version = found
        why = exc.message
    told = f"{_name(api.access)} ({version}), through {HOW}, since our own way failed: {why}"
    return Reached(api=api, told=told)


def _name(way: Access) -> str:
    return f"{f'context {way.context} ' if way.context else ''}at {way.server}"


def _through_kubectl(
    kubeconfig: str | None,
    context: str | None,
    deadline: Deadline,
    say: Callable[[str], None] | None,
) -> tuple[Api, str] | None:
    """None where kubectl is not there or does not come through either: our own failure says more."""
    if not kubectl_proxy.is_there() or deadline.is_over():
        return None
    try:
        way = access.described(kubeconfig=kubeconfig, context=context)
        pool = kubectl_proxy.started(kubeconfig, context, deadline, threads=THREADS)
        api = Api(
            Access(
                server=way.server,
                context=way.context,
                user=way.user,
                namespace=way.namespace,
                how=HOW,
                pool=pool,
                headers=dict,
                refresh=lambda: False,
                base=kubectl_proxy.BASE,
            ),
            deadline=deadline,
            say=say,
        )
        return api, api.check(tries=1)
    except SourceError:
        return None
