"""What becomes of a tensor that requires grad, for tests on the host and on a device."""

from benchmarks import routes

# Transfers between tensors whose contracts say what becomes of one that requires grad
RECORDED = [
    route for route in routes.ROUTES if route.host_memory and not route.array and "requires grad" in route.inputs
]


def grad_outcome(route, names, run):
    """What becomes of a tensor that requires grad, in the catalogue's words. run: does it, and gives the result."""
    names["t"] = names["t"].detach().requires_grad_()
    first = run()
    assert first.requires_grad
    if route.memory != routes.INTO:
        return routes.Does.FOLLOWS
    recorded = first.grad_fn
    before = [node for node, place in run().grad_fn.next_functions]
    return routes.Does.ACCUMULATES if recorded in before else routes.Does.FOLLOWS
