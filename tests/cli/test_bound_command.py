"""basil bound: the table, its JSON, the figure, and refusals."""

import subprocess
import sys

import pytest

SMALL = ["bound", "--nodes", 9, "--connectivity", 2]


def test_the_table_ends_with_the_breakdown_point(basil):
    answer = basil(*SMALL)
    assert (answer.code, answer.err) == (0, "")
    rows = [line.split() for line in answer.out.splitlines()]
    last = next(row for row in rows if len(row) > 3 and row[3] == "∞")
    assert last[:4] == ["5", "4/4", "∞", "∞"]  # two Byzantine nodes in a row, and S = 2
    assert "hears a benign one: 9\n" in answer.out
    assert "from b = 5 on" in answer.out  # half of nine


def test_json_has_null_for_what_is_infinite(basil):
    found = basil(*SMALL, "--json").json
    assert found["breakdown"] == 5
    assert found["worst_error"] == pytest.approx(9)
    assert found["server_breakdown"] == 4.5
    assert [row["bound"] is None for row in found["rows"]] == [False] * 5 + [True]
    for row in found["rows"][:-1]:
        assert row["any_ring"] <= row["measured"] <= row["bound"] * 1.000001
        assert row["gap_at_most"] == pytest.approx(row["bound"] ** 2 / 2)


def test_one_number_of_byzantine_nodes(basil):
    every = basil(*SMALL, "--json").json["rows"]
    assert basil(*SMALL, "--byzantine", 3, "--json").json["rows"] == [every[3]]


def test_it_does_without_pytorch():
    code = (
        "import sys; from basil.cli import main; main(['bound', '--nodes', '6']);"
        " assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=300)


def test_a_batch_gives_the_slack(basil):
    found = basil(*SMALL, "--sigma", 1, "--samples", 800, "--failure", 0.01, "--json").json
    assert found["slack"] == pytest.approx(2 * (2 * 5.99146 / 800) ** 0.5, rel=1e-4)  # ln(4/0.01)
    assert found["worst_error"] > 9


def test_the_figure(basil, tiny):
    found = basil(*SMALL, "--plot", tiny / "figures", "--json").json
    assert [path.rsplit(".", 1)[1] for path in found["figures"]] == ["png", "svg"]
    assert all((tiny / "figures" / f"bound.{kind}").stat().st_size for kind in ("png", "svg"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rate", 3], "rate = 3.0"),
        (["--connectivity", 9], "connectivity = 9"),
        (["--nodes", 1], "nodes = 1"),
        (["--sigma", 1], "--sigma and --samples go together"),
        (["--sigma", 1, "--samples", 9, "--slack", 1], "give one of them"),
        (["--smooth", 0.5], "0 < strong ≤ smooth"),
        (["--growth", -1], "growth = -1"),
        (["--byzantine", 9], "byzantine = 9"),
        (["--byzantine", 2, "--plot", "p"], "leave --byzantine out"),
        (["--plot", "taken"], "--plot taken cannot be written"),
    ],
)
def test_refusals(basil, tiny, monkeypatch, words, says):
    monkeypatch.chdir(tiny)
    (tiny / "taken").write_text("a file")
    answer = basil(*SMALL, *words)
    assert answer.code == 2
    assert says in answer.err
