"""Output: text, tables, figures and pages made from the results of ``analysis``."""

import os

os.environ["MPLBACKEND"] = (
    "svg"  # matplotlib draws into files, without a display; overrides the user's backend
)
