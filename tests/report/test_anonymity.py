"""The picture of how well owners are hidden."""

from pathlib import Path

import numpy as np
import pytest

from basil.errors import UserError
from basil.record.read import find_runs
from basil.reporting import write_report
from basil.reporting.anonymity import anonymity_figure

from fake_runs import write_run

OWNERS = {
    "paper": {"1": 10, "3": 30, "4": 60},
    "dummies_known": {"1": 50, "4": 50},
    "liars_collude": {"2": 8},
}


def test_each_line_is_the_part_with_at_most_so_many_owners(tmp_path: Path) -> None:
    for seed in (0, 1):  # two runs with the same sharing are one panel
        write_run(tmp_path / f"{seed}", seed=seed, sharing={"possible_owners": OWNERS})
    (axes,) = anonymity_figure(find_runs([tmp_path])).axes
    lines = {line.get_label(): np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()}
    assert lines["as the paper counts"] == pytest.approx([0, 0.1, 0.1, 0.4, 1.0])
    assert lines["for one who knows dummies"] == pytest.approx([0, 0.5, 0.5, 0.5, 1.0])
    assert lines["if all Byzantine nodes collude"] == pytest.approx([0, 0, 1, 1, 1])


def test_the_page_shows_it_where_data_was_shared(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", sharing={"possible_owners": OWNERS})
    paths = write_report(find_runs([tmp_path / "runs"]), tmp_path / "with")
    assert any(path.name == "anonymity.svg" for path in paths.figures)
    assert "Anonymity of shared samples" in paths.page.read_text()
    write_run(tmp_path / "plain" / "a")
    paths = write_report(find_runs([tmp_path / "plain"]), tmp_path / "without")
    assert not any("anonymity" in path.name for path in paths.figures)
    with pytest.raises(UserError, match="shared data"):
        anonymity_figure(find_runs([tmp_path / "plain"]))
