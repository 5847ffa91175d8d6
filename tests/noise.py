"""The noise that benchmarks have on a small virtual machine, simulated."""

import numpy as np


def processes(rng, cells, between=0.02, within=0.03, count=4, samples=10, effect=0.0, drift=0.0):
    """Log seconds of processes as the loader gives them, 25 % quantiles of their samples: (cells, count).

    between  sd of what a process has of its own, with the heavy tail of Student's t with four degrees of freedom
    within   sd of a sample in its process
    effect   added to every sample: a number, or one a cell
    drift    what all cells of a round share: a number, or one a round

    In 15 % of processes a burst, of three samples on average, makes the samples in it 10 to 60 % slower.
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
