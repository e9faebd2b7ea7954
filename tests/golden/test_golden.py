"""A redesign changes nothing that a run computes."""

import json
import os
import platform
import subprocess
import sys

import pytest

from golden.runs import FIXED, KEPT


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="digests are x86's")
def test_runs_end_with_the_same_models_bit_for_bit() -> None:
    found = subprocess.run(
        [sys.executable, KEPT.with_name("runs.py")],
        env={**os.environ, **FIXED},
        capture_output=True,
        text=True,
        check=True,
    )
    digests = json.loads(found.stdout)
    assert len(set(digests.values())) > 25
    kept = json.loads(KEPT.read_text())
    assert {name: digests[name] for name in kept} == kept
