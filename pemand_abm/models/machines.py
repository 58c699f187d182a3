"""A Ray cluster, joined or started: what replicas of a model and shards of a population share.

No address means a cluster of this machine alone, which ends with its work.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from pemand_abm.errors import ModelError
from pemand_abm.models import is_loopback

STORE_BYTES = 1_000_000_000
"""Of a cluster of workers that is started here: what more there is goes to the disk."""
MOST_LOST = 5
"""How often a function is done anew whose process was lost: some work ends every process."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A cluster: the module `ray`, and what the cluster has of each resource."""

    ray: Any
    has: dict[str, float]

    def leave(self) -> None:
        """Leave the cluster, and end it where it was started here."""
        self.ray.shutdown()


class Workers:
    """Functions done by processes of a cluster; one that is lost is done again by another.

    Their results stay with the processes until somebody gets them.
    """

    def __init__(self, joined: Joined, at_once: int) -> None:
        self._ray, self.at_once = joined.ray, at_once

    def put(self, value: Any) -> Any:
        """Return what stands for a value that many calls are given, sent once to each machine."""
        return self._ray.put(value)

    def call(self, function: Callable, *given: Any, returns: int = 1) -> Any:
        """Return what stands for the result, or for each of several results."""
        remote = self._ray.remote(function).options(
            num_cpus=1, num_returns=returns, max_retries=MOST_LOST, scheduling_strategy="SPREAD"
        )
        return remote.remote(*given)

    def get(self, standing: Any) -> Any:
        """Return the result itself; a fault of ours is raised as it would be here.

        Raises
        ------
        ModelError
            The cluster ended, or processes were lost too often with the same work.
        """
        from ray import exceptions

        try:
            return self._ray.get(standing)
        except exceptions.RayTaskError as fault:
            raise fault.cause from None
        except (exceptions.RayError, ConnectionError) as fault:
            raise ModelError(
                f"the Ray cluster failed: {first_line(fault)}; run the same command again"
            ) from fault


@contextmanager
def working(count: int, address: str | None, remote: str) -> Iterator[Workers]:
    """Give *count* workers of the cluster at *address*, or of one that is started for them here.

    Raises
    ------
    ModelError
        As `join`; or data would leave this machine where *remote* is not ``allow``.
    """
    if remote != "allow" and not stays_here(address):
        raise ModelError(
            f"the Ray cluster {address} is not known to run on this machine, and would be sent the "
            "seed's households. Where they may leave, say so: --remote allow (docs/privacy.md)"
        )
    joined = join(address, count, STORE_BYTES, remote != "allow")
    try:
        if (has := joined.has.get("CPU", 0)) < count:
            raise ModelError(f"{count} workers need a core each; the Ray cluster has {has:g}")
        yield Workers(joined, count)
    finally:
        joined.leave()


def join(address: str | None, cores: int, store: int, stay: bool) -> Joined:
    """Join the Ray cluster at *address*, or start one with so many *cores* on this machine.

    Parameters
    ----------
    address : str or None
        ``ray://HOST:10001``, ``HOST:6379``, or ``auto`` for that of this machine. Without it, a
        cluster of this machine alone is started.
    cores, store : int
        Of a cluster that is started: tasks or actors at once, and bytes of its object store.
    stay : bool
        Refuse a cluster that has other machines (`remote: refuse`).

    Raises
    ------
    ModelError
        Ray is not installed, nothing listens, or the cluster has machines where no data may go.
    """
    require()
    # Ray reports its use to its makers where nobody says otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    _reach(address)
    told: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            # "local", since RAY_ADDRESS would else send the data to another cluster unasked.
            ray.init(
                address="local",
                num_cpus=cores,
                include_dashboard=False,
                object_store_memory=store,
                **told,
            )
        else:
            ray.init(address=address, **told)
    except (OSError, RuntimeError, ValueError) as fault:
        where = address or "on this machine"
        raise ModelError(f"no Ray cluster {where}: {first_line(fault)}") from fault
    joined = Joined(ray, ray.cluster_resources())
    machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if stay and len(machines) > 1:
        joined.leave()
        raise ModelError(
            f"the Ray cluster has {len(machines)} machines, and would be sent what survey and "
            "synthetic households say of their members. Where these data may leave, say so: "
            "`remote: allow` in the scenario, or --remote allow (docs/privacy.md)"
        )
    return joined


def require() -> None:
    """Raise ModelError where Ray is not installed."""
    if find_spec("ray") is None:
        raise ModelError(
            "replicas and workers need the package ray: pip install 'pemand-abm[cluster]'"
        )


def stays_here(address: str | None) -> bool:
    """Say whether a cluster's address is this machine's own (`models.is_loopback`).

    >>> [stays_here(a) for a in (None, "127.0.0.1:6379", "ray://10.0.0.7:10001", "auto")]
    [True, True, False, False]
    """
    return address is None or is_loopback(address if "://" in address else f"ray://{address}")


def _reach(address: str | None) -> None:
    """Fail within seconds where nothing listens: Ray itself tries for many minutes."""
    if address is None or address == "auto":
        return
    given = urlsplit(address if "://" in address else f"ray://{address}")
    try:
        socket.create_connection((given.hostname or "", given.port or 10001), timeout=10).close()
    except (OSError, ValueError) as fault:
        raise ModelError(
            f"no Ray cluster at {address}: {fault}; start one (`ray start --head`), or name its "
            "address, such as ray://HOST:10001"
        ) from fault


def first_line(fault: BaseException) -> str:
    """Return the first line of what Ray says, which can take pages."""
    return next(iter(str(fault).strip().splitlines()), type(fault).__name__)
