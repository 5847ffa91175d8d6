"""Transfers of what requires grad: what autograd records."""

from benchmarks import routes

# Transfers between tensors whose contracts cover a source that requires grad
RECORDED = [
    route for route in routes.ROUTES if route.host_memory and not route.array and "requires grad" in route.inputs
]


def grad_outcome(route, names, run):
    """The catalogue's term for the result of a tensor that requires grad. run: transfers it, returns the result."""
    names["t"] = names["t"].detach().requires_grad_()
    first = run()
    assert first.requires_grad
    if route.memory != routes.INTO:
        return routes.Does.FOLLOWS
    recorded = first.grad_fn
    before = [node for node, place in run().grad_fn.next_functions]
    return routes.Does.ACCUMULATES if recorded in before else routes.Does.FOLLOWS
