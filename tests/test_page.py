"""How pages are written and numbers shown: the same bytes, whole or as they were, labels that can be read."""

from pathlib import Path

import pytest
import resultfiles
from conftest import build
from pages import figures, show
from resultfiles import FROM_NUMPY, around, conversion


@pytest.mark.parametrize("name", ["results.csv", "README.md", "index.html"])
def test_a_page_is_whole_or_as_it_was(tmp_path, monkeypatch, name):
    """Stopped while one of its files is written: all are the old ones, and what else lay there stays."""
    results = resultfiles.write(tmp_path / "r", [conversion({("torch.from_numpy(a)", 8): around(1e-6)}, [FROM_NUMPY])])
    page = build(results, tmp_path / "out")
    (page / "mine.txt").write_text("mine")
    (page / "gone.svg").write_text("of an older page")
    before = {path.name: path.read_bytes() for path in page.iterdir()}
    write_bytes = Path.write_bytes

    def stopped(self, data):
        write_bytes(self, data[:10] if self.name == name else data)
        if self.name == name:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "write_bytes", stopped)
        build(results, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in page.iterdir()} == before
    assert [path.name for path in page.parent.iterdir() if path.is_dir()] == [page.name]
    build(results, tmp_path / "out")
    assert {path.name for path in page.iterdir()} == {*before} - {"gone.svg"}


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_a_label_is_broken_where_the_figure_ends():
    label = "torch.stack([torch.from_numpy(x) for x in arrays]).to(device, non_blocking=True)"
    pieces = figures.broken(label)
    assert " ".join(pieces) == label and max(map(len, pieces)) <= figures.LABEL_LETTERS


@pytest.mark.parametrize(
    "way, values",
    [
        (show.seconds, {3.91e-7: "391 ns", 9.996e-7: "1.00 µs", 0.01234: "12.3 ms", 4e-10: "0.40 ns", 12.0: "12.0 s"}),
        (show.size, {8: "8 B", 4096: "4 KiB", 2**28: "256 MiB", 1536: "1.5 KiB"}),
        (show.ratio, {1.234: "1.23×", 41.2: "41×", 526.3: "526×", 1188.0: "1,190×"}),
    ],
)
def test_numbers_are_shown_with_a_unit_and_few_digits(way, values):
    assert {value: way(value) for value in values} == values
