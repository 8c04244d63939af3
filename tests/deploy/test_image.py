"""deploy/docker/Dockerfile: what its linter says, and what no linter knows."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.deploy.manifests import DEPLOY, ROOT, demo_settings, tool

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
TEXT = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE))
LINES = [line.split(maxsplit=1) for line in TEXT.splitlines() if line.strip()]
STAGES = [i for i, (word, _) in enumerate(LINES) if word == "FROM"]
LAST = LINES[STAGES[-1] :]


def said(word: str, lines: list[list[str]] = LAST) -> list[str]:
    """The arguments of all instructions of this name, in the stage that is shipped."""
    return [rest for name, rest in lines if name == word]


def test_the_linter_has_nothing_to_say() -> None:
    done = subprocess.run([tool("hadolint"), str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_base_is_one_pinned_release() -> None:
    images = {rest.split()[0] for rest in said("FROM", LINES)}
    assert len(STAGES) == 2
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", images.pop())


def test_every_package_is_installed_by_its_hash() -> None:
    for rest in said("RUN", LINES):
        for command in rest.split("&&"):
            if "pip" in command and " install " in command:
                assert "--require-hashes" in command or ("--no-deps" in command and "/wheel/*.whl" in command), command
    for lock in (ROOT / "requirements.lock", DEPLOY / "docker" / "build.lock"):
        assert all("--hash=sha256:" in part for part in re.split(r"\n(?=[a-z])", lock.read_text()))


def test_what_is_shipped_runs_as_nobody_and_can_be_stopped_and_asked() -> None:
    (user,) = said("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a number, so that Kubernetes can tell it is not root"
    assert said("STOPSIGNAL") == ["SIGTERM"]
    assert said("ENTRYPOINT") == ['["streameval-entry"]'], "exec form: signals reach the program"
    (check,) = said("HEALTHCHECK")
    assert f"http://127.0.0.1:{demo_settings().server.port}/livez" in check
    assert said("EXPOSE") == [str(demo_settings().server.port)]


def test_the_folders_that_are_written_belong_to_the_user_or_to_everybody() -> None:
    user, group = said("USER")[0].split(":")
    (install,) = [rest for rest in said("RUN") if rest.startswith("install --directory")]
    assert install == f"install --directory --owner={user} --group={group} {demo_settings().store.path}"
    assert said("VOLUME") == [demo_settings().store.path]
    assert "NUMBA_CACHE_DIR=/tmp/kernels" in said("ENV"), "compose and Kubernetes mount /tmp"


def test_a_source_file_that_changes_has_another_time() -> None:
    """Else kernels on a volume, of an image before, would be taken for those of this one."""
    (touch,) = re.findall(r'touch .*--date="(.*?)"', TEXT)
    assert touch == "@$(date +%s)"


def test_the_entry_hands_out_the_kernels_and_becomes_the_program(tmp_path: Path) -> None:
    """The script itself, with other folders, and a program that tells its pid and its words."""
    kernels, cache, programs = (tmp_path / name for name in ("kernels", "cache", "programs"))
    (kernels / "join").mkdir(parents=True)
    (cache / "join").mkdir(parents=True)
    for name in ("none", "older", "newer"):
        (kernels / "join" / name).write_text("of the image")
    for name, seconds in (("older", -60.0), ("newer", 60.0)):
        (cache / "join" / name).write_text("made here")
        when = (kernels / "join" / name).stat().st_mtime + seconds
        os.utime(cache / "join" / name, (when, when))
    programs.mkdir()
    program = programs / "streameval"
    program.write_text('#!/bin/sh\necho $$ "$@"\n')
    program.chmod(0o755)
    (folder,) = re.findall(r"NUMBA_CACHE_DIR=(/usr[\w/]+)", TEXT)
    script = tmp_path / "entry.sh"
    text = (DEPLOY / "docker" / "entry.sh").read_text()
    assert f"{folder}/." in text
    script.write_text(text.replace(folder, str(kernels)))
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "NUMBA_CACHE_DIR": str(cache)}
    process = subprocess.Popen(
        ["sh", str(script), "run", "-c", "a b"], env=environment, stdout=subprocess.PIPE, text=True
    )
    printed, _ = process.communicate()
    assert printed == f"{process.pid} run -c a b\n"
    assert {path.name: path.read_text() for path in (cache / "join").iterdir()} == {
        "none": "of the image", "older": "of the image", "newer": "made here",
    }  # fmt: skip


def test_what_is_copied_exists_and_gets_past_dockerignore() -> None:
    rules = [r for r in (ROOT / ".dockerignore").read_text().splitlines() if r and not r.startswith("#")]
    assert rules[0] == "*", "what is not named stays out"
    for rest in said("COPY", LINES):
        if rest.startswith("--from"):
            continue
        for source in rest.removeprefix("--chmod=0755 ").split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source.removesuffix('/')}" in rules, source


def test_the_version_is_that_of_the_package() -> None:
    (project,) = re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"VERSION={project}" in said("ARG")


def test_no_secret_is_built_in() -> None:
    for word in ("ENV", "ARG"):
        assert not re.search(r"token|password|secret", " ".join(said(word, LINES)), re.IGNORECASE)
