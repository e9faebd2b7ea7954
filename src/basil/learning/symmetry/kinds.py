"""What a factor passes through, and what it does not: by kind of module and of function."""

import torch
from torch import nn
from torch.nn import functional

Conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BatchNorm = nn.modules.batchnorm._BatchNorm
# What passes a positive factor of each channel on, and keeps channels apart.
HOMOGENEOUS = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.modules.dropout._DropoutNd,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.modules.padding._ReflectionPadNd,
    nn.modules.padding._ReplicationPadNd,
    nn.ZeroPad2d,
)
HOMOGENEOUS_CALLS = {
    torch.relu,
    functional.relu,
    functional.leaky_relu,
    functional.dropout,
    functional.max_pool1d,
    functional.max_pool2d,
    functional.avg_pool1d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool1d,
    functional.adaptive_avg_pool2d,
    functional.adaptive_max_pool2d,
    "relu",
    "relu_",
}
# What treats all units alike, but no factor passes.
ELEMENTWISE = (
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.ELU,
    nn.SELU,
    nn.CELU,
    nn.Softplus,
    nn.Mish,
    nn.Hardswish,
    nn.ReLU6,
)
ELEMENTWISE_CALLS = {
    functional.gelu,
    functional.silu,
    functional.elu,
    torch.tanh,
    torch.sigmoid,
    "tanh",
    "sigmoid",
}
