"""The same on a Ray cluster: a local one, or one that is there already, by its address.

Tasks keep no state and share no files, so any machine can do any of them, again if need be: Ray
starts a task anew when its process or its machine is lost.
"""

import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from basil import __version__
from basil.errors import UserError
from basil.many.processes import LOOK, Ended

PATIENCE = 10.0  # seconds, for a host to answer and for tasks to end
START = 60.0  # seconds, for a first worker to start
CLIENT_PORT = "10001"  # of ray://HOST, unless it says another
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
    _join(ray, workers, address)
    numbers: dict[Any, int] = {}
    try:
        if address is not None:
            _same_basil(ray, address)

        @ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)  # type: ignore[untyped-decorator]
        def task(piece: P) -> R:
            return work(piece)

        numbers.update((task.remote(piece), i) for i, piece in enumerate(pieces))
        while numbers:
            done, _ = ray.wait(list(numbers), num_returns=1, timeout=LOOK)
            for reference in done:
                yield _ended(ray, numbers.pop(reference), reference)
            watch(list(numbers.values()))
    except (KeyboardInterrupt, GeneratorExit):  # stopped here, or where the results go
        _call_off(ray, list(numbers))
        raise
    finally:
        ray.shutdown()


def _join(ray: Any, workers: int, address: str | None) -> None:
    """Become a driver of the cluster at `address`, or of a new one on this machine."""
    if address is not None:
        try:
            _knock(address)
        except OSError as error:
            raise UserError(f"--address {address}: no Ray cluster answers there: {error}") from None
    at_term = signal.getsignal(signal.SIGTERM)
    try:
        with _silence():
            ray.init(
                address=address or "local",  # without it Ray would join any cluster it finds here
                num_cpus=None if address else workers,
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level="critical",
            )
    except (OSError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())
        if address is None:
            raise UserError(f"Ray did not start: {why}") from error
        raise UserError(
            f"--address {address}: no Ray cluster takes us in there: {why}"
            " (one with a token wants RAY_AUTH_MODE=token and RAY_AUTH_TOKEN)"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, at_term)  # Ray's own would end us without a word


def _knock(address: str) -> None:
    """Is anybody there?  Ray itself would go on trying for half a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address.startswith("ray://") and not port.isdecimal():
        host, port = port, CLIENT_PORT
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _same_basil(ray: Any, address: str) -> None:
    """Ask the cluster once for its Basil, rather than hear from each task that there is none."""

    @ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]  # whatever else it is busy with
    def theirs() -> str:
        try:
            import basil

            return f"Basil {basil.__version__}"
        except ImportError as error:
            return f"no Basil ({error})"

    try:
        found, ours = ray.get(theirs.remote(), timeout=START), f"Basil {__version__}"
    except ray.exceptions.RayError as error:
        raise UserError(f"--address {address}: no worker starts there: {_last(error)}") from error
    if found != ours:
        raise UserError(f"--address {address}: this is {ours}, and the cluster has {found}")


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing on the terminal: while it connects, Ray's C++ side heeds no logging level."""
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


def _call_off(ray: Any, references: list[Any]) -> None:
    """Let tasks end rather than kill them: each removes its folder on the machine where it ran."""
    for reference in references:
        ray.cancel(reference)
    if references:
        ray.wait(references, num_returns=len(references), timeout=PATIENCE)


def _ended(ray: Any, number: int, reference: Any) -> Ended[Any]:
    try:
        return Ended(number, ray.get(reference))
    except ray.exceptions.RayTaskError as error:  # the work itself raised
        return Ended(number, None, _last(error.cause))
    except ray.exceptions.RayError as error:
        return Ended(number, None, f"lost on the cluster: {str(error).splitlines()[0]}")


def _last(error: object) -> str:
    """Ray wraps what happened in pages; the last line says it."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("--engine ray needs Ray: pip install 'basil-fl[ray]'") from None
    return ray
