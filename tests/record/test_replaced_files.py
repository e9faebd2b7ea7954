"""Files that take the place of others, whole or not at all."""

import subprocess
import sys
from pathlib import Path

from basil.record.disk import replacing

OTHER = """
import sys
from pathlib import Path
from basil.record.disk import replacing

with replacing(Path(sys.argv[1]), shared=True) as partial:
    partial.write_text("theirs")
"""


def test_two_processes_replace_a_shared_file_at_once(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    with replacing(page, shared=True) as partial:
        partial.write_text("mi")
        subprocess.run([sys.executable, "-c", OTHER, str(page)], check=True)
        assert page.read_text() == "theirs"
        with partial.open("a") as file:
            file.write("ne")
    assert page.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [page]
