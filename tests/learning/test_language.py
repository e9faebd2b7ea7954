"""A language model that is fine-tuned on a ring through adapters of PEFT."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import basil
from basil.errors import UserError
from basil.experiment import set_up
from basil.learning.language import CausalLM
from basil.many.figures import lacking_data, plan_figure
from basil.recipe import parse
from basil.recipe.figure import load_figure

RECIPE: dict[str, Any] = {
    "data": {"dataset": "text", "path": "play.txt", "length": 16, "by": "speaker",
             "partition": "by-key"},
    "ring": {"nodes": 5, "byzantine": 1},
    "scheme": {"rounds": 4, "rule": "lowest-loss"},
    "learning": {"model": "causal-lm", "checkpoint": "tiny", "rank": 2, "batch": 8, "rate": 1.0},
    "attack": {"name": "rescale", "by": "basis", "factor": 3.0},
    "record": {"every": 2},
}  # fmt: skip


@pytest.fixture(autouse=True)
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six speakers who say much the same."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    words = ["to", "be", "or", "not", "that", "is", "the", "question"]
    said = [
        f"SPEAKER {s}:\n" + " ".join(draw.choice(words, 40)) + "\n\n"
        for _ in range(6)
        for s in "ABCDEF"
    ]
    Path("play.txt").write_text("".join(said))


def test_only_the_adapters_travel_and_their_symmetries_are_known() -> None:
    compute = set_up(parse(RECIPE)).compute
    # Two layers; q: 2·32 + 32·2, v (one head for two): 2·32 + 16·2.
    assert compute.layout.size == 2 * (64 + 64 + 64 + 32)
    assert all("lora_" in slot.name for slot in compute.layout.slots)
    assert len(compute.symmetries.pairs) == 4
    assert compute.symmetries.warning is None


def test_a_ring_fine_tunes_it_and_the_adapter_loads_in_peft(tmp_path: Path) -> None:
    from peft import PeftModel

    result = basil.run(RECIPE, out=tmp_path / "run")
    first, last = (result.metrics()[i]["loss"]["worst"] for i in (0, -1))
    assert last < first - 0.1
    assert result.summary["messages"]["bytes"] < 5 * 4 * 5 * 2000  # not the 30,000 weights
    folder = tmp_path / "adapter"
    result.save_adapter(folder, node=min(result.models()))

    setup = set_up(parse(RECIPE))
    trained, tokens = setup.compute.network, setup.test.take(slice(0, 4))[0]
    assert isinstance(trained, CausalLM)
    base = set_up(parse(RECIPE)).compute.network.inner.unload()  # type: ignore[union-attr,operator]
    loaded = CausalLM(PeftModel.from_pretrained(base, str(folder)))
    trained.load_state_dict(result.models()[min(result.models())], strict=False)
    with torch.no_grad():
        mine, theirs = (network.eval()(tokens) for network in (trained, loaded))
    torch.testing.assert_close(mine, theirs)


def test_a_checkpoint_that_does_not_suit_is_refused(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    small = LlamaConfig(vocab_size=100, num_attention_heads=1, **sizes)
    LlamaForCausalLM(small).save_pretrained(tmp_path / "small")
    for checkpoint, reason in {"small": "has 100 tokens, and the data 256", "none": "none"}.items():
        learning = {**RECIPE["learning"], "checkpoint": str(tmp_path / checkpoint)}
        with pytest.raises(UserError, match=f"learning.checkpoint = .*{reason}"):
            set_up(parse({**RECIPE, "learning": learning}))


def test_an_adapter_is_asked_of_a_network_that_has_one(tmp_path: Path) -> None:
    plain = {"data": {"dataset": "synthetic", "samples": 120}, "scheme": {"rounds": 1}}
    result = basil.run(
        {**plain, "ring": {"nodes": 3}, "learning": {"batch": 8}}, out=tmp_path / "r"
    )
    with pytest.raises(UserError, match="no adapter"):
        result.save_adapter(tmp_path / "adapter")


def test_a_figure_about_a_text_of_ones_own_lacks_nothing(tmp_path: Path) -> None:
    plan = plan_figure(load_figure("llm"), 1, tmp_path, overrides=["data.path=play.txt"])
    assert lacking_data(plan) == ""
