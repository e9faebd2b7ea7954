"""Runs from Python as one has them in a notebook: stopped, watched, repeated, looked at."""

import base64
import io
import re
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.figure
import pytest

import basil
from basil.data import load
from basil.record.run_folder import held
from ctrl_c import CtrlC

RECIPE: dict[str, Any] = {
    "data": {"dataset": "synthetic", "samples": 120},
    "ring": {"nodes": 4, "byzantine": 1},
    "scheme": {"rounds": 6},
    "learning": {"model": "softmax", "batch": 8, "rate": 0.3},
    "attack": {"name": "gaussian"},
    "record": {"every": 1},
}


@pytest.fixture(autouse=True)
def _without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is installed here or not."""
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_ctrl_c_leaves_a_checkpoint_and_resume_goes_on(tmp_path: Path) -> None:
    whole = basil.run(RECIPE, out=tmp_path / "whole")
    before = signal.getsignal(signal.SIGINT)
    folder = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt, match=r"stopped; go on with basil.resume\('.*part'\)"):
        basil.run(RECIPE, out=folder, callbacks=[CtrlC(2)])
    assert signal.getsignal(signal.SIGINT) is before
    assert (folder / "checkpoint.safetensors").exists()
    with pytest.raises(KeyboardInterrupt):  # and once more
        basil.resume(folder, callbacks=[CtrlC(4)])
    rest = basil.resume(folder)
    assert rest.summary["model_sha256"] == whole.summary["model_sha256"]
    assert [line["round"] for line in rest.metrics()] == list(range(7))


def test_a_run_in_a_thread_hears_no_signals_and_ends(tmp_path: Path) -> None:
    done: list[basil.Result] = []
    thread = threading.Thread(target=lambda: done.append(basil.run(RECIPE, out=tmp_path / "run")))
    thread.start()
    thread.join()
    assert done[0].summary["rounds"] == 6


def test_an_interrupted_run_wants_its_own_data(tmp_path: Path) -> None:
    mine, other = load("synthetic", 0, samples=120), load("synthetic", 0, samples=120, noise=0.2)
    with pytest.raises(KeyboardInterrupt):
        basil.run(RECIPE, dataset=mine, out=tmp_path / "run", callbacks=[CtrlC(2)])
    with pytest.raises(basil.UserError, match="'own' is brought along"):
        basil.resume(tmp_path / "run")
    with pytest.raises(basil.UserError, match="was run with other data"):
        basil.resume(tmp_path / "run", dataset=other)
    assert basil.resume(tmp_path / "run", dataset=mine).summary["rounds"] == 6


def test_only_who_says_so_overwrites_and_only_the_run(tmp_path: Path) -> None:
    first = basil.run(RECIPE, out=tmp_path / "run")
    (tmp_path / "run/notes.txt").write_text("mine")
    with pytest.raises(basil.UserError, match=r"holds a run already.*overwrite=True"):
        basil.run(RECIPE, out=tmp_path / "run")
    shorter = {**RECIPE, "scheme": {"rounds": 2}, "seed": 5, "record": {"models": False}}
    second = basil.run(shorter, out=tmp_path / "run", overwrite=True)
    assert first.summary["rounds"] == 6
    assert second.metrics()[-1]["round"] == 2
    assert (tmp_path / "run/notes.txt").read_text() == "mine"
    assert not (tmp_path / "run/models.safetensors").exists()  # the first run's are gone


def test_a_mistake_overwrites_nothing(tmp_path: Path) -> None:
    basil.run(RECIPE, out=tmp_path / "run")
    wrong = {**RECIPE, "learning": {"model": "softmax", "batch": 500}}
    with pytest.raises(basil.UserError, match=r"batch = 500"):
        basil.run(wrong, out=tmp_path / "run", overwrite=True)
    assert (tmp_path / "run/summary.json").exists()


# Progress.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    loud, silent = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", loud)
    basil.run(RECIPE, out=tmp_path / "run", progress=True)
    assert "round 6/6" in loud.getvalue()
    assert "worst" in loud.getvalue()
    monkeypatch.setattr(sys, "stderr", silent)
    basil.run(RECIPE, out=tmp_path / "silent")
    assert silent.getvalue() == ""


def test_a_bar_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython's part is played: `display` gives a handle, whose `update` changes what is shown."""
    shown: list[dict[str, str]] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        shown.append(data)
        return SimpleNamespace(update=lambda data, raw: shown.append(data))

    shell = SimpleNamespace(kernel="one")
    stub = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", stub)
    basil.run(RECIPE, out=tmp_path / "run", progress=True)
    assert shown[0] == {"text/plain": "starting"}
    assert shown[1]["text/plain"].startswith("round 1/6")
    assert shown[-1]["text/html"].startswith('<progress value="18" max="18"></progress> round 6/6')
    assert len(shown) < 2 + 18  # not every turn


def test_a_bar_nobody_sees_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    basil.run(RECIPE, out=tmp_path / "run", progress=True)
    assert capfd.readouterr() == ("", "")


# What a result shows.


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> basil.Result:
    return basil.run(RECIPE, out=tmp_path_factory.mktemp("result") / "run")


def test_a_result_is_a_table_and_a_curve_in_a_notebook(result: basil.Result) -> None:
    html = result._repr_html_()
    assert f">{100 * result.summary['accuracy']['worst']:.1f}</td>" in html
    assert ">Gaussian</td>" in html
    [picture] = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert base64.b64decode(picture) == result.plot()._repr_png_()
    assert str(result.folder.parent) not in html
    assert len(repr(result)) < 200


def test_plot_gives_the_figure(result: basil.Result) -> None:
    figure = result.plot()
    assert isinstance(figure, matplotlib.figure.Figure)
    [line] = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 7]  # type: ignore[arg-type]
    assert list(line.get_ydata()) == [m["accuracy"]["worst"] for m in result.metrics()]  # type: ignore[arg-type]
    assert result.plot(against="megabytes").axes[0].lines[0].get_xdata()[-1] == pytest.approx(  # type: ignore[index]
        result.metrics()[-1]["bytes"] / 1e6
    )


def test_metrics_are_dicts_or_a_frame(
    result: basil.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = result.metrics()
    assert [line["round"] for line in lines] == list(range(7))
    assert lines[-1]["accuracy"] == result.summary["accuracy"]
    stub = SimpleNamespace(json_normalize=lambda lines, sep: ("frame", lines, sep))
    monkeypatch.setitem(sys.modules, "pandas", stub)
    assert result.metrics() == ("frame", lines, "/")


def test_a_run_that_goes_on_is_not_resumed(tmp_path: Path) -> None:
    """Nor called one that was stopped: from its first second on, before any checkpoint."""
    folder = tmp_path / "run"
    basil.run(RECIPE, out=folder)
    (folder / "summary.json").unlink()
    with held(folder), pytest.raises(basil.UserError, match="is being written by another process"):
        basil.resume(folder)
