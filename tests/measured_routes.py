"""Results of a few routes with chosen times."""

import resultfiles
from analysis.results import load
from resultfiles import KIB, MIB, around, contract, conversion, memcpy, steady

FIRST, SECOND, THIRD = "torch.first(a)", "torch.second(a)", "torch.third(a)"

SIZES = (8, KIB, 64 * KIB, MIB, 16 * MIB)


def loaded(tmp_path, times, promises=None, busy=()):
    """Load results of conversions in which the cells ``busy``, (route, nbytes), have no quiet samples."""
    routes = dict.fromkeys(route for route, *_ in times)
    contracts = [contract(route, "copy", **(promises or {}).get(route, {})) for route in routes]
    slow = [((route, "float32", nbytes), process) for route, nbytes in busy for process in range(4)]
    benches = [conversion(times, contracts), memcpy({8: around(1e-7)})]  # something is quiet
    return load(resultfiles.write(tmp_path, benches, slow=slow, clock=steady if busy else None))
