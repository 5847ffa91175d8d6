"""What templates may see and hold: sentences and loops over views, no table of data and no module."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy
import pandas
import pytest
from cli import parse_shape, parse_size
from pages import show

TEMPLATES = sorted(show.TEMPLATES.rglob("*.jinja"))
METHODS = r"groupby|iloc|loc|query|itertuples|iterrows|nunique|astype|dropna|idxmax|tolist"
OF_FRAMES = rf"groupby\(\[|\.({METHODS})\b|\[\w+[.\[]\S* *== "
FRAME = pandas.DataFrame({"a": [1]})


@pytest.mark.parametrize("value", [FRAME, FRAME["a"], numpy.zeros(1), show])
def test_a_template_refuses_frames_arrays_and_modules(value):
    for given in (value, [value], {"key": (value,)}):
        with pytest.raises(TypeError, match="a template takes views of data"):
            show.render("tables", "ranges", processes=given)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_works_on_frames_or_modules(path):
    code = " ".join(re.findall(r"{[{%](.*?)[}%]}", path.read_text(encoding="utf-8"), re.DOTALL))
    assert not re.search(OF_FRAMES, code) and not re.search(r"\bshow\.", code)


# Text of a size -> bytes; None: refused. Of scripts/cli.py and of the form (form.js)
SIZES = {
    "4096": 4096,
    " 3 MiB ": 3 * 2**20,
    "3MB": 3_000_000,
    "1.5k": 1500,
    "1.5KiB": 1536,
    "0.5GiB": 2**29,
    "2 g": 2_000_000_000,
    "64kib": 65536,
    "0.3KiB": None,
    "": None,
    "-8": None,
    "1e6": 10**6,
    "2.5e3 k": 2_500_000,
    "1e": None,
    "8 TiB": None,
    "MiB": None,
    "1.": None,
}


# Text of a shape -> its elements; None: refused
SHAPES = {"1080x1920x3": 1080 * 1920 * 3, " 2X3 ": 6, "3x": None, "x3": None, "0x3": None, "2x-3": None, "2 x 3": None}


def test_sizes_are_read_alike_in_a_terminal():
    assert {text: parse_size(text) for text in SIZES} == SIZES
    shapes = {text: parse_shape(text) for text in SHAPES}
    assert {text: shape and math.prod(shape) for text, shape in shapes.items()} == SHAPES


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_sizes_are_read_alike_in_the_form():
    source = (Path(show.TEMPLATES) / "form.js").read_text(encoding="utf-8")
    units = re.search(r"const UNITS = .*", source)[0]
    parser = re.search(r"function bytesOf.*?\n  }\n", source, re.DOTALL)[0]
    texts = {**SIZES, **SHAPES}
    sizes = f"{json.dumps([*texts])}.map((text) => bytesOf(text) || null)"
    program = f"{units}\n{parser}\nconsole.log(JSON.stringify({sizes}))"
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    assert dict(zip(texts, json.loads(done.stdout))) == texts
