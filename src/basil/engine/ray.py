"""The same on a Ray cluster: a local one, or one that is there already, by its address.

Tasks keep no state and share no files, so any machine can do any of them, again if need be: Ray
starts a task anew when its process or its machine is lost.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from basil.engine.pool import LOOK, Ended
from basil.errors import UserError

PATIENCE = 10.0  # seconds
RETRIES = 3  # after lost processes; what raises is not tried again
P = TypeVar("P")
R = TypeVar("R")


def on_ray(
    work: Callable[[P], R],
    pieces: Sequence[P],
    workers: int,
    address: str | None,
    gpus: float = 0.0,
    watch: Callable[[Sequence[int]], None] = lambda running: None,
) -> Iterator[Ended[R]]:
    """Do all pieces, in order of finishing.  `workers`: of a local cluster; `gpus`: for each task.

    On a cluster elsewhere Basil must be installed, in the same version.
    """
    ray = _ray()
    try:
        _knock(address)
        ray.init(
            address=address or "local",  # without it Ray would join any cluster that it finds here
            num_cpus=None if address else workers,
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level="error",
        )
    except (OSError, ValueError, RuntimeError) as error:
        where = (
            f"--address {address}: no Ray cluster answers there" if address else "Ray did not start"
        )
        raise UserError(f"{where}: {error}") from error
    try:

        @ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)  # type: ignore[untyped-decorator]
        def task(piece: P) -> R:
            return work(piece)

        numbers = {task.remote(piece): i for i, piece in enumerate(pieces)}
        while numbers:
            done, _ = ray.wait(list(numbers), num_returns=1, timeout=LOOK)
            for reference in done:
                yield _ended(ray, numbers.pop(reference), reference)
            watch(list(numbers.values()))
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Is anybody there?  Ray itself would go on trying for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _ended(ray: Any, number: int, reference: Any) -> Ended[Any]:
    try:
        return Ended(number, ray.get(reference))
    except ray.exceptions.RayTaskError as error:  # the work itself raised
        return Ended(number, None, str(error.cause))
    except ray.exceptions.RayError as error:
        return Ended(number, None, f"lost on the cluster: {str(error).splitlines()[0]}")


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("--engine ray needs Ray: pip install 'basil-fl[ray]'") from None
    return ray
