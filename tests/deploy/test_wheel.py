"""The packages: built without a network, in order by twine, whole, and the README run from them block by block."""

from __future__ import annotations

import email
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = Path.home() / ".cache" / "streameval" / "packaging" / "bin"  # of .ci/packaging.lock
BUILT_FROM = ("streameval", "tests", "docs", "pyproject.toml", "mkdocs.yml", "README.md", "CHANGELOG.md", "LICENSE")
NOWHERE = {**dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:1"), "PIP_NO_INDEX": "1"}  # fmt: skip
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(console|toml)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # where nothing was compiled here, kernels are there


def tool(name: str) -> Path:
    """A program of .ci/packaging.lock, beside this Python or where .ci/run keeps it; skips without it."""
    for folder in (Path(sys.executable).parent, TOOLS):
        if (folder / name).exists() and (folder / "pyproject-build").exists():
            return folder / name
    if os.environ.get("STREAMEVAL_REQUIRE_ALL"):
        pytest.fail(f"{name} is not installed; .ci/run does it")
    pytest.skip(f"install .ci/packaging.lock: packages are built and checked with its {name}")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from it."""
    here, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    build = tool("pyproject-build")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, here / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, here / name)
    command = [str(build), "--no-isolation", "--outdir", str(out), str(here)]
    done = subprocess.run(command, env={**os.environ, **NOWHERE}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def the(packages: Path, pattern: str) -> Path:
    (found,) = packages.glob(pattern)
    return found


def test_twine_finds_both_in_order(packages: Path) -> None:
    command = [str(tool("twine")), "check", "--strict", *map(str, packages.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_the_wheel_holds_the_package_and_nothing_else(packages: Path) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "streameval").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in zipfile.ZipFile(the(packages, "*.whl")).namelist() if ".dist-info/" not in name}
    assert held == ours


def test_all_has_every_other_extra(packages: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (whole,) = extras["all"]
    assert whole == f"streameval[{','.join(sorted(set(extras) - {'all'}))}]"
    wheel = zipfile.ZipFile(the(packages, "*.whl"))
    (metadata,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    assert set(email.message_from_bytes(wheel.read(metadata)).get_all("Provides-Extra", [])) == set(extras)


@pytest.fixture(scope="module")
def machine(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new virtual environment in which the wheel is installed; the locked packages come from this one."""
    folder = tmp_path_factory.mktemp("machine")
    venv.create(folder / ".venv", with_pip=True)
    python = folder / ".venv" / "bin" / "python"
    wheel = str(the(packages, "*.whl"))
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", wheel], check=True, capture_output=True)
    place = sysconfig.get_path("purelib", vars={"base": str(folder / ".venv")})
    # as a path, so that what it says of other paths (this checkout) does not count
    (Path(place) / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    lend_kernels(Path(place))
    return folder


def lend_kernels(place: Path) -> None:
    """What this checkout has compiled: its modules are the wheel's, and compiling them twice takes minutes.

    Numba takes a kernel for that of a module whose time and size are those it was compiled from.
    """
    for module in (ROOT / "streameval").rglob("*.py"):
        installed = place / module.relative_to(ROOT)
        assert installed.read_bytes() == module.read_bytes()
        os.utime(installed, ns=(module.stat().st_atime_ns, module.stat().st_mtime_ns))
    for kernel in (ROOT / "streameval").rglob("__pycache__/*.nb[ic]"):
        installed = place / kernel.relative_to(ROOT)
        installed.parent.mkdir(exist_ok=True)
        shutil.copy(kernel, installed)


def shell(machine: Path, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a block as a user would, in that folder."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        ["bash", "-c", script], cwd=machine, env={**kept, **more}, capture_output=True, text=True, check=False, timeout=900
    )  # fmt: skip


def block(word: str) -> str:
    """The one block of the README that has this word."""
    (found,) = [text for _, text in BLOCKS if word in text]
    return found


@pytest.fixture(scope="module")
def demo(machine: Path) -> Iterator[str]:
    """`streameval demo` from the wheel, with the token that the README exports; its address."""
    program = str(machine / ".venv" / "bin" / "streameval")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "STREAMEVAL_TOKEN": "..."}
    process = subprocess.Popen(
        [program, "demo", "--port", "0"], cwd=machine, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        log = process.stderr
        url = next(found[1] for line in log if (found := re.search(r"page\s+(http://[^/]+)", line)))
        rest = threading.Thread(target=log.read, daemon=True)  # a full pipe would stop the demo
        rest.start()
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(240)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        rest.join(30)
        log.close()


def test_every_block_of_the_readme_is_known_here() -> None:
    """A new block needs a test of its own. Two are not run: `make` is what runs this, and images need a registry of images."""
    words = ["make demo", "results?model=ctr", "simulate traffic", "# streameval.toml", "config check", "results?from=", "docker compose up", "streameval gate"]  # fmt: skip
    assert len(BLOCKS) == len(words)
    for word, (_, text) in zip(words, BLOCKS, strict=True):
        assert word in text


def test_the_program_is_the_wheel_s(machine: Path) -> None:
    done = shell(machine, ".venv/bin/python -c 'import streameval; print(streameval.__file__)'")
    assert str(machine) in done.stdout


def test_the_make_targets_exist() -> None:
    for line in block("make demo").splitlines():
        target = line.split("#")[0].split()
        assert subprocess.run([*target, "-n"], cwd=ROOT, capture_output=True, check=False).returncode == 0, line


def test_replay_a_file(machine: Path) -> None:
    done = shell(machine, "set -e\n" + block("simulate traffic"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d+ scores: \[", done.stdout, re.MULTILINE), done.stdout
    assert "calibration" in done.stdout


def test_watch_production(machine: Path) -> None:
    (machine / "streameval.toml").write_text(block("# streameval.toml"))
    check, start = block("config check").strip().splitlines()
    done = shell(machine, check)
    assert (done.returncode, done.stdout) == (0, "the settings are valid\n")
    done = shell(machine, start)  # there is no such broker here, which is said
    assert done.returncode == 1
    assert 'kafka.bootstrap_servers = "kafka-1:9092": no broker answered' in done.stderr


def test_the_addresses_of_the_readme_answer(machine: Path, demo: str) -> None:
    deadline = time.monotonic() + 600
    while True:
        done = shell(machine, "set -eo pipefail\n" + block("results?model=ctr").replace("http://127.0.0.1:8080", demo))
        if "streameval_auc{" in done.stdout or time.monotonic() > deadline:
            break
        time.sleep(2)
    assert done.returncode == 0, done.stderr
    assert '"model":"ctr"' in done.stdout
    assert "streameval_auc{" in done.stdout
    done = shell(machine, block("results?from=").replace("http://127.0.0.1:8080", demo))
    assert '"results":' in done.stdout or '"detail":' in done.stdout


def gated(machine: Path, url: str, within: str) -> subprocess.CompletedProcess[str]:
    """The block that a delivery would run, against a monitor at this address."""
    steps = "promote() { echo promoted; }\nroll_back() { echo rolled back; }\n"
    script = block("streameval gate").replace("--model ctr", f"--url {url} --model ctr").replace("2h", within)
    return shell(machine, steps + script)


def test_did_the_deploy_hurt(machine: Path, demo: str) -> None:
    done = gated(machine, demo, "10m")
    assert done.returncode == 0, done.stderr
    announced, *_, verdict, step = done.stdout.splitlines()
    assert "v2" in announced
    assert "v2 is worse than v1" in verdict
    assert step == "rolled back"


def test_a_monitor_that_is_away_neither_promotes_nor_rolls_back(machine: Path) -> None:
    done = gated(machine, "http://127.0.0.1:1", "2s")
    assert done.returncode == 1
    assert done.stderr.endswith("gate failed\n")
    assert not {"promoted", "rolled back"} & set(done.stdout.splitlines())
