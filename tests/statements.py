"""Benchmarks of a statement that counts its calls."""

from benchmarks.core.statement import StatementBenchmark


class Counted:
    """A statement that counts its calls. Each call takes one microsecond by its own clock."""

    number = repeat = setups = 0

    def setup(self, *params):
        self.calls, self.setups = 0, self.setups + 1

    def call(self):
        self.calls += 1

    def timer(self):
        return self.calls * 1e-6

    def timeit_call(self, *params):
        return "call()", {"call": self.call}


def benchmark(suite=Counted, *cell, of=StatementBenchmark, **attributes):
    """Return a benchmark for the cell, made as asv does: an instance of ``suite`` with these attributes."""
    instance = type(suite.__name__, (suite,), {"__module__": suite.__module__, **attributes})()
    (name,) = (name for name in dir(instance) if name.startswith("timeit_"))
    method = getattr(instance, name)
    made = of(f"toy.{suite.__name__}.{name}", method, [method, instance])
    made._current_params = cell
    made.instance = instance
    return made


def ran(suite=Counted, *cell, **attributes):
    """Return ``benchmark(...)`` and the result that asv gets when it runs the cell."""
    made = benchmark(suite, *cell, **attributes)
    made.do_setup()
    return made, made.run(*cell)
