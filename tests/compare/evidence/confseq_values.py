"""Makes confseq_0_0_11.csv: the one-sided normal mixture as the confseq package computes it.

confseq 0.0.11 is a C++ extension without wheels (needs a compiler and Boost's headers), so it is no dependency of the tests.
With it installed: `python tests/compare/evidence/confseq_values.py > tests/compare/confseq_0_0_11.csv`.
"""

from __future__ import annotations

import csv
import sys

import numpy as np
from confseq.boundaries import normal_log_mixture, normal_mixture_bound

out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(["v", "v_opt", "alpha", "bound", "s", "log_mixture"])
for alpha in (0.2, 0.05, 0.01, 0.001, 1e-6):
    for v_opt in (1.0, 250.0):
        for v in v_opt * np.array([0.001, 0.1, 1.0, 7.0, 1000.0]):
            bound = float(normal_mixture_bound(v, alpha, v_opt, alpha, True))
            for s in (-6.0 * v**0.5, 0.0, 2.5 * v**0.5, 8.0 * v**0.5):
                out.writerow(
                    [repr(float(x)) for x in (v, v_opt, alpha, bound, s)]
                    + [repr(float(normal_log_mixture(s, v, v_opt, alpha, True)))]
                )
