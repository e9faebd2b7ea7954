"""A page that is served for a test, and run folders that grow."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basil.watch.server import LOOK, listen, server
from basil.watch.start import LOOPBACK, kind_of, view_of

from fake_runs import RECIPE

TOKEN = "for-tests-only-0123456789"
PATIENCE = 60.0


@dataclass(frozen=True)
class Site:
    """Where a page is served."""

    port: int

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/{TOKEN}/"

    def ask(
        self, path: str = f"/{TOKEN}/", host: str | None = None, method: str = "GET"
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers and body."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, headers={"Host": host or f"{LOOPBACK}:{self.port}"})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, headers, answer.read().decode()
        finally:
            connection.close()

    @contextmanager
    def listening(self, query: str = "") -> Iterator[Callable[[], dict[str, Any]]]:
        """What gives the next event, as JSON."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=PATIENCE)
        connection.request("GET", f"/{TOKEN}/events{query}")
        answer = connection.getresponse()

        def following() -> dict[str, Any]:
            while not (line := answer.readline()).startswith(b"data: "):
                assert line, "the server hung up"
            found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            return found

        try:
            yield following
        finally:
            answer.close()
            connection.close()


@contextmanager
def served(path: Path, kind: str = "", port: int = 0) -> Iterator[Site]:
    """The page of a folder, from a thread of this process."""
    made = listen(LOOPBACK, port)
    running = server(view_of(path, kind or kind_of(path)), made, LOOPBACK, TOKEN)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [made]})
    thread.start()
    try:
        while not running.started:
            time.sleep(0.01)
        yield Site(made.getsockname()[1])
    finally:
        running.should_exit = True
        thread.join()
        made.close()


class GrowingRun:
    """A run folder that is written round by round, as the recorder does it."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 6,
        byzantine: tuple[int, ...] = (2,),
        rounds: int = 40,
        attack: str = "gaussian",
    ) -> None:
        self.folder, self.nodes, self.byzantine, self.rounds = folder, nodes, byzantine, rounds
        folder.mkdir(parents=True, exist_ok=True)
        recipe = RECIPE.format(
            seed=0, nodes=nodes, connectivity=3, scheme="basil", attack="ATTACK"
        ).replace('"ATTACK"', json.dumps(attack))
        recipe = recipe.replace("[scheme]\n", f"[scheme]\nrounds = {rounds}\n")
        (folder / "recipe.toml").write_text(recipe)
        (folder / ".lock").touch()
        self.begin()

    def begin(self) -> None:
        """From its beginning: another run in the same place."""
        facts = {"order": list(range(self.nodes)), "byzantine": list(self.byzantine)}
        (self.folder / "summary.json").unlink(missing_ok=True)
        (self.folder / "selections.csv").write_text("round,node,chosen,byzantine\n")
        (self.folder / "metrics.jsonl").write_text("")
        new = self.folder / "run.json.partial"
        new.write_text(json.dumps(facts))
        new.replace(self.folder / "run.json")
        self.round = 0
        self.measure()

    def measure(self) -> None:
        self.append("metrics.jsonl", json.dumps(self.measurement()) + "\n")

    def measurement(self) -> dict[str, Any]:
        worst = round(0.9 - 0.8 / (1 + self.round), 4)
        return {
            "round": self.round,
            "accuracy": {"worst": worst, "mean": worst + 0.02},
            "loss": {"worst": 2 - worst, "mean": 1.9 - worst},
            "messages": 10 * self.round,
            "bytes": 70_000 * self.round,
            "evaluations": 1,
            "steps": 1,
            "distances": 0,
            "virtual_seconds": 0.3 * self.round,
            "seconds": 0.1 * self.round,
        }

    def append(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(text)

    def go_on(self, rounds: int = 1, away: tuple[int, ...] = ()) -> None:
        """Everybody chooses its predecessor."""
        for _ in range(rounds):
            self.round += 1
            rows = [
                f"{self.round},{node},{(node - 1) % self.nodes},{int(node in self.byzantine)}\n"
                for node in range(self.nodes)
                if node not in away
            ]
            self.append("selections.csv", "".join(rows))
            self.measure()

    def finish(self) -> None:
        summary = {"scheme": "basil", "rounds": self.round, "seed": 0, "nodes": self.nodes}
        (self.folder / "summary.json").write_text(json.dumps(summary))
        (self.folder / ".lock").unlink()


def a_moment() -> None:
    """As long as it takes until files are looked at again."""
    time.sleep(1.2 * LOOK)
