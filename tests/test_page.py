"""How pages are written and numbers shown: the same bytes, whole or as they were, labels that can be read."""

from pathlib import Path

import pytest
import resultfiles
from conftest import build
from pages import figures, show
from resultfiles import FROM_NUMPY, around, conversion


def test_the_same_results_give_the_same_bytes(rich_results, tmp_path):
    first, second = build(rich_results, tmp_path / "one"), build(rich_results, tmp_path / "two")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_old_figures_are_removed_and_other_files_kept(rich_results, tmp_path):
    out = tmp_path / "out" / "box"
    out.mkdir(parents=True)
    (out / "time-old.svg").write_text("old")
    (out / "notes.txt").write_text("mine")
    build(rich_results, tmp_path / "out")
    assert not (out / "time-old.svg").exists()
    assert (out / "notes.txt").read_text() == "mine"


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
    "value, shown",
    [(3.91e-7, "391 ns"), (9.996e-7, "1.00 µs"), (0.01234, "12.3 ms"), (4e-10, "0.40 ns"), (12.0, "12.0 s")],
)
def test_seconds_are_shown_with_a_prefix(value, shown):
    assert show.seconds(value) == shown


@pytest.mark.parametrize("value, shown", [(8, "8 B"), (4096, "4 KiB"), (2**28, "256 MiB"), (1536, "1.5 KiB")])
def test_sizes_are_powers_of_two(value, shown):
    assert show.size(value) == shown


@pytest.mark.parametrize("value, shown", [(1.234, "1.23×"), (41.2, "41×"), (526.3, "526×"), (1188.0, "1,190×")])
def test_ratios_have_two_or_three_digits(value, shown):
    assert show.ratio(value) == shown
