"""ByzFL: its clients and server in the loop of its own benchmark (byzfl/benchmark/train.py)."""

import sys
from importlib.metadata import version
from unittest.mock import MagicMock, patch

from torch.utils.data import DataLoader, TensorDataset
from work import Moment, Work, given, network, now, say

# Only the data sets of its benchmark need torchvision, and PyPI's goes with few builds of PyTorch.
with patch.dict(sys.modules, torchvision=MagicMock()):
    from byzfl import ByzantineClient, Client, Server
    from byzfl.fed_framework import models

models.mlp = network  # its models are looked up in this module by name


def federated(work: Work, byzantine: int, aggregator: dict) -> Moment:
    """FedAvg with local steps, as `start_training` does it; nothing is evaluated."""
    common = {
        "model_name": "mlp", "device": "cpu", "optimizer_name": "SGD", "learning_rate": work.rate,
        "weight_decay": 0.0, "milestones": [], "learning_rate_decay": 1.0,
    }  # fmt: skip
    loaders = [
        DataLoader(TensorDataset(*work.data(node)), batch_size=work.batch, shuffle=True)
        for node in range(work.nodes)
    ]
    more = {
        "loss_name": "CrossEntropyLoss", "LabelFlipping": False, "nb_labels": 10, "momentum": 0.0,
        "store_per_client_metrics": False,
    }  # fmt: skip
    clients = [
        Client({**common, **more, "training_dataloader": loader}) for loader in loaders[byzantine:]
    ]
    server = Server(
        {**common, "test_loader": loaders[0], "aggregator_info": aggregator, "pre_agg_list": []}
    )
    attackers = ByzantineClient({"name": "Gaussian", "f": byzantine, "parameters": {}})
    laps = []
    for _ in range(work.rounds):
        state = server.get_dict_parameters()
        for client in clients:
            client.set_model_state(state)
        sent = []
        for client in clients:
            client.compute_model_update(work.steps)
            sent.append(client.get_flat_parameters())
        server.update_model_with_weights(sent + attackers.apply_attack(sent))
        laps.append(now())
    return work.milliseconds(laps, len(clients))


work = given()
b = work.byzantine
plain = federated(work, 0, {"name": "Average", "parameters": {}})
robust = federated(work, b, {"name": "TrMean", "parameters": {"f": b}})
say(
    version("byzfl"),
    "a server aggregates; attacks and robust rules; no decentralised mode",
    {"FedAvg": plain},
    {"trimmed mean at the server": robust},
)
