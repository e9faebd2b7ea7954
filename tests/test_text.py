"""Text for terminals of any width."""

import pytest

from basil.text import aligned, as_text, duration, paragraphs, width, wrapped

HEAD = ["attack", "scheme", "seed", "worst acc. %", "mean acc. %", "messages", "real time"]
ROWS = [
    ["No attack", "Basil", "0–2 (n = 3)", "97.5 ± 0.4", "98.0 ± 0.1", "12,000", "12.3 s"],
    ["Layer sign flip", "Basil published", "0", "9.8", "10.2", "12,000", "1.50 h"],
]


def lines(columns: int) -> list[str]:
    return as_text([HEAD, *ROWS], columns).splitlines()


def test_a_table_that_fits_has_one_line_of_titles_and_all_columns() -> None:
    head, rule, *rows = lines(200)
    assert head.split("  ")[0] == "attack"
    assert all(title in head for title in HEAD)
    assert len(rule) == len(head) == len(rows[0])
    assert len(rows) == 2


@pytest.mark.parametrize("columns", range(20, 130))
def test_no_line_of_a_table_is_too_long_and_no_cell_is_cut(columns: int) -> None:
    shown = lines(columns)
    assert max(map(len, shown)) <= columns
    said = " ".join(shown)
    words = " ".join(said.split())
    for row in ROWS:
        assert " ".join(row[:2]) in words or columns < 60
        assert row[3] in said
    # What is not shown is named.
    assert all(word in said for title in HEAD for word in title.split())


def test_fewer_columns_come_before_stacked_rows() -> None:
    assert any(line.startswith("no room for: messages, real time") for line in lines(75))
    assert "12,000" not in "".join(lines(75))
    assert [line.split()[0] for line in lines(48)[:3]] == ["attack", "scheme", "seed"]
    assert lines(48)[3:7] == [
        "worst acc. %  97.5 ± 0.4",
        "mean acc. %   98.0 ± 0.1",
        "messages      12,000",
        "real time     12.3 s",
    ]


def test_a_last_column_of_words_is_broken_before_any_is_left_out() -> None:
    rows = [["node", "state", "round", "notes"], ["1", "training", "3/4", "attack gaussian, " * 3]]
    shown = as_text(rows, 50).splitlines()
    assert max(map(len, shown)) <= 50
    assert " ".join(shown).count("gaussian") == 3
    assert (
        shown[2].index("attack")
        == shown[0].index("notes")
        == len(shown[3]) - len(shown[3].lstrip())
    )


def test_names_and_sentences_stand_beside_each_other_or_beneath() -> None:
    rows = [("iid", "Every node gets a like share."), ("dirichlet", "Drawn.")]
    assert aligned(rows, None) == ["iid        Every node gets a like share.", "dirichlet  Drawn."]
    assert aligned(rows, 30) == [
        "iid        Every node gets a",
        "           like share.",
        "dirichlet  Drawn.",
    ]
    assert aligned(rows, 24) == [
        "iid",
        "    Every node gets a",
        "    like share.",
        "dirichlet",
        "    Drawn.",
    ]


def test_words_stay_whole_and_formulas_stay_where_they_are() -> None:
    path = "runs/a-very-long-name-of-a-run-folder"
    assert wrapped(f"go on with: basil run --resume {path}", 20).splitlines()[-1] == path
    text = "One paragraph\nof two lines.\n\n    x = 1\n    y = 2\n\nAnother."
    assert paragraphs(text, None) == text
    assert paragraphs(text, 40) == text.replace("paragraph\nof", "paragraph of")


def test_a_pipe_has_no_margin_but_columns_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert width() is None
    monkeypatch.setenv("COLUMNS", "80")
    assert width() == 80
    for nonsense in ("", "0", "wide", "-3"):
        monkeypatch.setenv("COLUMNS", nonsense)
        assert width() is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0.00 ms"),
        (0.0377, "37.7 ms"),
        (0.9996, "1,000 ms"),
        (4.624375, "4.62 s"),
        (9.996, "10.0 s"),
        (203.0, "203 s"),
        (600, "10.0 min"),
        (2 * 3600, "2.00 h"),
        (3 * 86400, "3.00 days"),
        (6_737_498_162, "213 years"),  # 365.25 days each
    ],
)
def test_times_have_units_that_one_can_picture(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_spread_has_the_unit_of_its_mean() -> None:
    assert duration(3600 * 3, 600) == "3.00 ± 0.17 h"
