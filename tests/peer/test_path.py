"""What the text of the package must not hold, and what it cannot do without."""

import ast
import re
from datetime import timedelta
from pathlib import Path

import pytest

import basil.peer
from basil.peer.members.identity import load_identity

from peer_helpers import (
    Peer,
)

FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "execv", "spawnv"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}


def test_nothing_on_the_path_unpickles_evaluates_or_calls_a_shell() -> None:
    sources = sorted(Path(basil.peer.__file__).parent.rglob("*.py"))
    assert len(sources) > 10
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            where = f"{source.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
                assert not names & FORBIDDEN_MODULES, where
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, where
            elif isinstance(node, ast.Call):
                called = node.func
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                home = getattr(getattr(called, "value", None), "id", "")
                if (home, name) != ("re", "compile"):
                    assert name not in FORBIDDEN_CALLS, where
                assert (home, name) not in {("torch", "load"), ("np", "load")}, where
                shell = [k.value for k in node.keywords if k.arg == "shell"]
                assert all(isinstance(v, ast.Constant) and v.value is False for v in shell), where


def test_nothing_but_certificates_looks_at_the_date() -> None:
    """So a clock that is wrong or set back changes nothing between peers."""
    path = Path(basil.peer.__file__).parent
    for source in [*(path / "link").glob("*.py"), path / "messages" / "evidence.py"]:
        text = source.read_text()
        assert "datetime" not in text
        assert set(re.findall(r"\btime\.(\w+)\(", text)) <= {"monotonic"}


def test_there_is_no_way_to_speak_without_tls() -> None:
    for source in Path(basil.peer.__file__).parent.rglob("*.py"):
        assert not re.search(r"insecure|CERT_NONE|check_hostname *= *False", source.read_text())


def test_a_folder_without_certificates_is_fatal(ring: Path) -> None:
    (ring / "node-0" / "ca.crt").unlink()
    with pytest.raises(Exception, match=r"ca.crt cannot be read"):
        Peer(ring, 0)


def test_certificates_are_backdated_a_little_for_clocks_that_differ(ring: Path) -> None:
    certificate = load_identity(ring / "node-0").certificate
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(
        days=90, minutes=5
    )
