"""How it is said: text, tables, figures and pages of what analysis knows."""

import os

os.environ["MPLBACKEND"] = "svg"  # matplotlib draws into files and needs no display, whatever this named before
