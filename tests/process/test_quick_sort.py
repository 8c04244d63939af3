"""Which of NumPy's sorts a process uses."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from streameval.process.quick_sort import DISABLED, choose_sort

ZEN_4 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nflags\t\t: fpu avx2 avx512f avx512bw\n\n"


@pytest.mark.parametrize(
    ("cpuinfo", "chosen"),
    [
        (ZEN_4 + ZEN_4.replace(": 0", ": 1"), True),
        (ZEN_4.replace("AuthenticAMD", "GenuineIntel"), False),
        (ZEN_4.replace(": 25", ": 26"), False),
        (ZEN_4.replace("avx512f ", ""), False),
        ("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n", False),
        ("", False),
        (None, False),
    ],
    ids=["Zen 4", "Intel", "Zen 5", "Zen 3", "ARM", "empty", "no such file"],
)
def test_numpy_sorts_without_avx512_on_zen_4_alone(monkeypatch, tmp_path, cpuinfo: str | None, chosen: bool) -> None:
    monkeypatch.setattr(os, "environ", {})
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    choose_sort(tmp_path / "cpuinfo")
    assert (DISABLED in os.environ) is chosen


def test_what_the_environment_chose_stays(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(ZEN_4)
    monkeypatch.setattr(os, "environ", {DISABLED: ""})
    choose_sort(tmp_path / "cpuinfo")
    assert os.environ == {DISABLED: ""}


def test_the_command_chooses_before_numpy_is_imported_and_numpy_understands_it(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(ZEN_4)
    program = f"""
import sys, pathlib
from unittest.mock import patch
from streameval.commands import cli
with patch("streameval.process.quick_sort.choose_sort.__defaults__", (pathlib.Path({str(tmp_path / "cpuinfo")!r}),)):
    assert "numpy" not in sys.modules
    sys.argv = ["streameval", "--version"]
    try:
        cli.main()
    except SystemExit:
        pass
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print([(name in __cpu_dispatch__, __cpu_features__.get(name, False)) for name in ("X86_V4", "AVX512_ICL")])
"""
    environ = {name: value for name, value in os.environ.items() if name != DISABLED}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environ)
    known = platform.machine() in (
        "x86_64",
        "AMD64",
    )  # its names are those of NumPy's build, whatever the processor has
    assert done.stdout.splitlines()[-1:] == [str([(known, False)] * 2)], done.stderr
