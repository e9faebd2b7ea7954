"""pfl-research: FederatedAveraging on its SimulatedBackend, as in its benchmarks."""

from importlib.metadata import version

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn
from work import Moment, given, network, now, say


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def loss(self, x, y, is_train=True):
        return nn.functional.cross_entropy(self.inner(x), y)

    def metrics(self, x, y):
        return {}


class Laps(TrainingProcessCallback):
    def __init__(self) -> None:
        self.ends: list[Moment] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ends.append(now())
        return False, Metrics()


work = given()
held = [PyTorchTensorDataset(work.data(node)) for node in range(work.nodes)]
users = list(range(work.nodes))
data = FederatedDataset(held.__getitem__, get_user_sampler("minimize_reuse", users))
module, laps = Network(), Laps()
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=work.rounds,
        evaluation_frequency=10**6,
        train_cohort_size=work.nodes,
        val_cohort_size=0,
    ),
    backend=SimulatedBackend(training_data=data, val_data=data),
    model=PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    ),
    model_train_params=NNTrainHyperParams(
        local_num_epochs=None,
        local_num_steps=work.steps,
        local_learning_rate=work.rate,
        local_batch_size=work.batch,
    ),
    model_eval_params=NNEvalHyperParams(local_batch_size=work.batch),
    callbacks=[laps],
)
say(
    version("pfl"),
    "a server aggregates; privacy; no decentralised mode, no attack, no robust rule",
    {"FedAvg": work.milliseconds(laps.ends)},
    {},
)
