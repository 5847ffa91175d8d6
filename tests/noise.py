"""Simulated noise of benchmarks on a small virtual machine."""

import numpy as np


def processes(rng, cells, between=0.02, within=0.03, count=4, samples=10, effect=0.0, drift=0.0):
    """Return log seconds of processes as the loader gives them: 25 % quantiles of samples, of shape (cells, count).

    between  sd between processes, with the heavy tail of Student's t with four degrees of freedom
    within   sd of samples within a process
    effect   added to every sample: a number, or one per cell
    drift    added to all cells of a round: a number, or one per round

    In 15 % of processes, a burst of three samples on average makes these samples 10 to 60 % slower.
    """
    own = between * rng.standard_t(4, (cells, count, 1)) / np.sqrt(2)
    taken = own + within * rng.standard_normal((cells, count, samples))
    hit = rng.random((cells, count, 1)) < 0.15
    first = rng.integers(0, samples, (cells, count, 1))
    last = first + rng.geometric(1 / 3, (cells, count, 1))
    place = np.arange(samples)
    burst = hit & (place >= first) & (place < last)
    taken = taken + burst * np.log(rng.uniform(1.1, 1.6, (cells, count, 1)))
    taken = taken + np.broadcast_to(effect, (cells,))[:, None, None] + np.broadcast_to(drift, (count,))[:, None]
    return np.quantile(taken, 0.25, axis=2)
