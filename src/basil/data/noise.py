"""Noise on samples before they leave their node: (ε, δ) local differential privacy (cf. §VII).

Each sample is released once, by its owner, with noise of its own.  It then travels through many
baskets, but always as the same noisy copy: what others do with it costs no privacy.  A node's H
batches have no sample in common, so each sample's ε is that of its one release, however many
batches there are (parallel composition).  Whoever counts a person's samples instead, and a node is
one person's, composes all αD of them: `facts` has both numbers.

The noise is honest about what it does to pictures.  Two pictures can differ in all pixels, so Δ
grows with √d while a pixel's own range does not: an ε of 1 leaves nothing to be seen.

Bytes stay bytes: the noisy pixel is rounded and cut to 0 … 255.  That is computed from what is
already private, and a noisy sample has the form and the size of any other, dummies included; as
floats it would take four times the bytes, and keep hardly more of a pixel that drowns in noise.
(Rounding also hides the low bits, by which floating-point noise has been undone: I. Mironov, CCS
2012.)
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from basil.data.samples import Array, Dataset, Samples
from basil.errors import UserError
from basil.theory.privacy import gaussian_epsilon, gaussian_sigma


@dataclass(frozen=True)
class Noise:
    """z + N(0, σ²I) with z = (x − mean)/std, cut to ‖z‖₂ ≤ clip · √d; d numbers in a sample.

    Any two samples are at most Δ = 2 clip √d apart, which gives σ.  mean and std are the data
    set's published ones.  The label of one of k classes stays with probability e^η/(e^η + k − 1),
    η = label_epsilon, else it is one of the others (k-ary randomised response: S. L. Warner 1965);
    η = 0 leaves labels as they are, and ε then speaks of x alone.
    """

    epsilon: float
    delta: float
    clip: float
    label_epsilon: float

    def sensitivity(self, data: Dataset) -> float:
        return 2 * self.clip * math.sqrt(data.train.x[0].size)

    def sigma(self, data: Dataset) -> float:
        """In units of the data's standard deviation."""
        return gaussian_sigma(self.epsilon, self.delta, self.sensitivity(data))

    def of(self, samples: Samples, data: Dataset, stream: np.random.Generator) -> Samples:
        """Noisy copies."""
        shape = (1, -1) + (1,) * (samples.x.ndim - 2)
        mean, std = (np.array(value).reshape(shape) for value in (data.mean, data.std))
        z = ((samples.x - mean) / std).reshape(len(samples), -1)
        lengths = np.linalg.norm(z, axis=1, keepdims=True)
        z *= np.minimum(1.0, self.sensitivity(data) / 2 / np.maximum(lengths, 1e-12))
        z += self.sigma(data) * stream.standard_normal(z.shape)
        x = z.reshape(samples.x.shape) * std + mean
        if samples.x.dtype == np.uint8:
            x = np.clip(np.rint(x), 0, 255)
        return Samples(x.astype(samples.x.dtype), self._labels(samples.y, data, stream))

    def _labels(self, y: Array, data: Dataset, stream: np.random.Generator) -> Array:
        if self.label_epsilon == 0:
            return y
        if data.classes < 2:
            raise UserError(
                f"sharing.label_epsilon = {self.label_epsilon}: data set {data.name} has no class"
                " labels to be random about"
            )
        others = data.classes - 1
        lies = stream.random(len(y)) * (math.exp(self.label_epsilon) + others) < others
        return np.where(lies, (y + stream.integers(1, data.classes, len(y))) % data.classes, y)

    def facts(self, data: Dataset, samples: int) -> dict[str, Any]:
        """The account, for a sample and for all that a node shares."""
        sigma, distance = self.sigma(data), self.sensitivity(data)
        together = gaussian_epsilon(self.delta, sigma, distance, max(1, samples))
        return {
            "epsilon_of_a_sample": self.epsilon + self.label_epsilon,
            "delta": self.delta,
            "sigma": sigma,
            "sensitivity": distance,
            "labels_are_private": self.label_epsilon > 0,
            "epsilon_of_all_samples_of_a_node": together + samples * self.label_epsilon,
        }
