"""Flower: a ClientApp and FedAvg in its simulation runtime, which runs nodes in Ray's processes."""

from collections import OrderedDict
from importlib.metadata import version

import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from work import Moment, given, network, now, say

work = given()


class Node(NumPyClient):
    def __init__(self, number: int) -> None:
        x, y = work.data(number)
        self.batches = DataLoader(TensorDataset(x, y), batch_size=work.batch, shuffle=True)

    def fit(self, parameters, config):
        module = network()
        names = module.state_dict().keys()
        given = zip(names, map(torch.tensor, parameters), strict=True)
        module.load_state_dict(OrderedDict(given))
        optimiser = torch.optim.SGD(module.parameters(), lr=work.rate)
        for _, (x, y) in zip(range(work.steps), self.batches, strict=False):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()
        return [value.numpy() for value in module.state_dict().values()], work.samples, {}


class Timed(FedAvg):
    def aggregate_fit(self, *arguments):
        result = super().aggregate_fit(*arguments)
        laps.append(now())
        return result


def client(context):
    return Node(int(context.node_config["partition-id"])).to_client()


def server(context):
    first = ndarrays_to_parameters([v.numpy() for v in network().state_dict().values()])
    strategy = Timed(fraction_evaluate=0.0, min_fit_clients=work.nodes, initial_parameters=first)
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=work.rounds))


laps: list[Moment] = []
run_simulation(
    server_app=ServerApp(server_fn=server),
    client_app=ClientApp(client_fn=client),
    num_supernodes=work.nodes,
    backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
)
say(
    version("flwr"),
    "a server aggregates; a process for each core; robust rules; no attack, no decentralised mode",
    {"FedAvg": work.milliseconds(laps)},
    {},
)
