"""Build a setup from a recipe: the one place where names in a recipe become code."""

from dataclasses import replace

from basil import data
from basil.data import Samples
from basil.data.partition import check_samples
from basil.engine.durations import Durations
from basil.errors import UserError
from basil.experiment.machine import (
    Custom,
    Machine,
    build_network,
    choose_device,
    choose_loss,
    choose_optimizer,
    with_measured_times,
)
from basil.experiment.memory import check_memory, check_models
from basil.experiment.metrics import choose_metrics
from basil.experiment.node_data import NodeData, distribute, triggered
from basil.experiment.nodes import check_options
from basil.experiment.options import options_of
from basil.experiment.participants import gather
from basil.experiment.setup import Setup
from basil.experiment.sharing_phase import share
from basil.learning.cuda import compute_for
from basil.learning.models import corner
from basil.learning.pool import Pool
from basil.recipe import Recipe, with_own_data


def set_up(
    recipe: Recipe,
    custom: Custom | None = None,
    machine: Machine | None = None,
    reuse: Setup | None = None,
    held: NodeData | None = None,
) -> Setup:
    """Everything that a run needs.

    `reuse`: another setup in this process, whose data and kernels are used where they are the
    same.  `held`: a peer's, which has one node's samples; its sharing is no simulation.
    """
    custom, machine = custom or Custom(), machine or Machine()
    device = choose_device(machine.device)
    options = options_of(recipe.data, data.DATASETS, "dataset")
    if held is None:
        check_memory(recipe, options)
    sources = custom, recipe.data.dataset, options, device  # no set depends on the seed
    if reuse is not None and reuse.sources != sources:
        reuse = None
    if reuse is not None:
        dataset = reuse.data
    elif custom.dataset is None:
        dataset = data.load(recipe.data.dataset, recipe.seed, **options)
    else:  # a peer's was checked before it took its part of it
        dataset = custom.dataset if held else data.checked(custom.dataset, "dataset")
    if custom.dataset is not None and held is None:
        recipe = with_own_data(recipe, dataset)
    if held is None:
        check_samples(dataset.train.y, recipe.ring.nodes)  # before that many are made
    node_data = held or distribute(gather(recipe), dataset)
    participants = node_data.participants
    if held is None and custom.model is None:
        check_models(recipe, dataset, device)
    network = build_network(recipe, dataset, custom)
    shape = corner(network)
    pools = reuse if reuse is not None and reuse.corner == shape else None

    def pool(samples: Samples, augmented: bool = False) -> Pool:
        return Pool(samples, dataset.mean, dataset.std, device, shape, augmented)

    augmented = recipe.data.augment
    if augmented and dataset.train.x.ndim != 4:
        raise UserError(
            "data.augment = true: images are moved and mirrored, and samples of"
            f" {dataset.name} have the shape {'×'.join(map(str, dataset.train.x.shape[1:]))}"
        )
    if recipe.scheme.by_class and (dataset.classes < 1 or dataset.train.y.ndim > 1):
        raise UserError(
            f"scheme.by_class = true: samples of {dataset.name} have no class of their own"
        )
    # Another's training pool will do unless either has samples that the data set has not.
    plain = node_data.train is dataset.train
    same = plain and pools is not None and pools.node_data.train is dataset.train
    same = same and pools is not None and pools.recipe.data.augment == augmented
    test = pools.test if pools else pool(dataset.test)
    fooled = triggered(participants, dataset)
    compute = compute_for(
        network,
        custom.loss or choose_loss(recipe, dataset),
        pools.compute.pool if pools and same else pool(node_data.train, augmented),
        models=recipe.ring.nodes,
        deterministic=machine.deterministic,
        compiled=machine.compiles(participants.turns, node_data.steps_in_a_turn()),
        canonical=recipe.canonical,
        optimizer=choose_optimizer(recipe),
        beside=reuse.compute if reuse else None,
    )
    graph = participants.graph
    recipe = with_measured_times(recipe, compute, max(graph.degrees) if graph else 1)
    costs = recipe.time  # numbers by now, each of them
    timing = Durations(
        float(costs.forward),
        float(costs.step),
        costs.megabits,
        costs.latency,
        float(costs.distance),
        float(costs.average),
    )
    shared = None
    if participants.shares and held is None:
        shared = share(recipe, node_data, dataset, compute, timing)
        node_data = replace(node_data, received=shared.received())
    setup = Setup(
        recipe=recipe,
        data=dataset,
        node_data=node_data,
        compute=compute,
        timing=timing,
        test=test,
        metrics=choose_metrics(recipe, custom.metrics),
        triggered=None if fooled is None else pool(fooled),
        shared=shared,
        sources=sources,
        corner=shape,
    )
    check_options(setup)
    if setup.metrics:  # with more samples than two, which may lack a class, and with it a metric
        some = min(setup.test_samples, compute.chunk)
        compute.test([compute.initial], test, some, setup.metrics)
    return setup
