"""Language models that are fine-tuned through adapters (extra `basil-fl[llm]`)."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from basil.data import smollm2
from basil.errors import UserError
from basil.table import states

TINY = "tiny"


class CausalLM(nn.Module):
    """Tokens [n, t] in, logits [n, t, vocabulary] out; `inner` is a model of transformers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.inner(input_ids=tokens, use_cache=False).logits
        return logits.float()


@states(trained=True)
def causal_lm(
    shape: tuple[int, ...],
    classes: int,
    *,
    checkpoint: str = smollm2.NAME,
    rank: int = 8,
    alpha: float = 16.0,
    targets: str = "q_proj v_proj",
    half: bool = False,
) -> nn.Module:
    """A language model of transformers with adapters of PEFT, which alone are trained (LoRA).

    checkpoint: "smollm2", a folder that transformers reads, or "tiny", a random one for tests.
    rank, alpha: of the adapters, which stand beside the linear maps `targets`.  half: the frozen
    part in bfloat16.

    Source: Hu et al., "LoRA: Low-rank adaptation of large language models", 2021.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise UserError(
            "learning.model = 'causal-lm' needs transformers and peft: run"
            " `pip install 'basil-fl[llm]'`"
        ) from None
    base = _base(checkpoint, classes)
    if (size := base.config.vocab_size) < classes:
        raise UserError(
            f"learning.checkpoint = {checkpoint!r} has {size} tokens, and the data {classes}: use"
            f" its own tokenizer, data.tokenizer = {checkpoint!r}"
        )
    if half:
        base = base.to(torch.bfloat16)
    adapters = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=targets.split(), task_type="CAUSAL_LM"
    )
    return CausalLM(get_peft_model(base, adapters))


def _base(checkpoint: str, vocabulary: int) -> Any:
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    if checkpoint == TINY:
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
        return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, **sizes, **heads))
    folder = smollm2.unpacked() if checkpoint == smollm2.NAME else Path(checkpoint).expanduser()
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise UserError(f"learning.checkpoint = {checkpoint!r}: {error}") from error
