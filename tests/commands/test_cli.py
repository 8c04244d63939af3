"""The commands' manners: what is wrong is said before the work, in one line, with the fix and the right exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from streameval.commands.cli import TrafficTarget, cli, main
from streameval.commands.targets import OutFile, keep_apart


def streameval(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streameval", *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=480,
    )  # fmt: skip


def test_a_current_directory_that_is_gone_is_an_error_with_a_fix(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    script = "import os, sys; os.rmdir(os.getcwd()); from streameval.commands.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "config", "--help"], cwd=here, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        1,
        "streameval: the current directory has been removed; change to another one\n",
    )


def test_the_end_of_a_file_inside_is_an_error_with_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """click has it for the end of the input, and says nothing."""

    def ends(_: object) -> None:
        raise EOFError("Ran out of input")

    monkeypatch.setattr("streameval.commands.cli._load", ends)
    monkeypatch.setattr(sys, "argv", ["streameval", "run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "internal error; please report it" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("config",), ("notify",)])
def test_a_list_of_commands_says_what_each_does_to_the_end_of_its_sentence(arguments: tuple[str, ...]) -> None:
    said = CliRunner().invoke(cli, [*arguments, "--help"], terminal_width=80).output
    listed = said.partition("Commands:\n")[2].splitlines()
    assert listed
    assert all(line.endswith(".") and not line.endswith("..") for line in listed), said


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("replay", "nope.jsonl"), 1, "nope.jsonl: no such file"),
        (
            ("replay", "events.jsonl", "--report", "no/where/r.json"),
            2,
            "the folder no/where does not exist; create it first",
        ),
        (
            ("replay", "events.jsonl", "--predictions", "no/p.parquet"),
            2,
            "the folder no does not exist; create it first",
        ),
        (("simulate", "no/t.jsonl"), 2, "the folder no does not exist; create it first"),
        (
            ("simulate", "x.txt"),
            2,
            "x.txt: the format cannot be told; name it .jsonl, .jsonl.gz, .jsonl.zst, .csv or .parquet",
        ),
        (("simulate", "x.csv.gz"), 2, "x.csv.gz: the format cannot be told"),
        (("replay", "README"), 1, 'set files.format to "jsonl"'),
        (("run", "-c", "nope.toml"), 1, "nope.toml: no such file; give the path of a TOML file"),
        (("config", "check", "-c", "events.jsonl"), 1, "events.jsonl: not valid TOML"),
        (("simulate", "t.jsonl", "--scenario", "frob"), 2, "'frob' is not one of"),
        (
            ("simulate", "kafka", "-c", "avro.toml"),
            1,
            'kafka.format = "avro": simulate writes the standard fields as JSON',
        ),
        (("frob",), 2, "No such command 'frob'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_fix(
    tmp_path: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    (tmp_path / "events.jsonl").write_text('{"impression_id": "a", "ts": 1, "user_id": "u", "pclick": 0.5}\n')
    (tmp_path / "README").write_text("x")
    avro = '[kafka]\nformat = "avro"\n[kafka.schema_registry]\nurl = "http://127.0.0.1:1"\n'
    (tmp_path / "avro.toml").write_text(avro)
    done = streameval(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README", "avro.toml", "events.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "letters", "names"),
    [
        (["--report", "in.jsonl"], "", ("--report in.jsonl", "FILES in.jsonl")),
        (["--report", "../here/in.jsonl"], "", ("--report ../here/in.jsonl", "FILES in.jsonl")),
        (["--report", "hard.jsonl"], "", ("--report hard.jsonl", "FILES in.jsonl")),
        (["--report", "soft.jsonl"], "", ("--report soft.jsonl", "FILES in.jsonl")),
        (["--report", "c.toml"], "", ("--report c.toml", "--config c.toml")),
        (["--report", "new"], "./new", ("--report new", "files.dead_letters new")),
        (["--report", "dangling"], "new", ("--report dangling", "files.dead_letters new")),
        ([], "in.jsonl", ("files.dead_letters in.jsonl", "FILES in.jsonl")),
        (["--predictions", "in.jsonl"], "", ("--predictions in.jsonl", "FILES in.jsonl")),
        (["--predictions", "new"], "new", ("--predictions new", "files.dead_letters new")),
        (["--report", "new", "--predictions", "new"], "", ("--predictions new", "--report new")),
    ],
)
def test_a_file_that_is_read_or_written_otherwise_is_not_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    letters: str,
    names: tuple[str, str],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("in.jsonl").write_text("junk\n")
    Path("c.toml").write_text(f'[files]\ndead_letters = "{letters}"\n')
    Path("hard.jsonl").hardlink_to("in.jsonl")
    Path("soft.jsonl").symlink_to("in.jsonl")
    Path("dangling").symlink_to("new")
    before = {path.name: path.lstat().st_mtime_ns for path in here.iterdir()}
    says = "{} and {} are the same file, whose contents would be lost; name another file for {}"
    for command in ["replay"] if "--predictions" in arguments else ["replay", "auction"]:
        done = CliRunner().invoke(cli, [command, "in.jsonl", "-c", "c.toml", *arguments])
        assert done.exit_code == 2
        assert says.format(*names, names[0].split()[0]) in done.output
    assert {path.name: path.lstat().st_mtime_ns for path in here.iterdir()} == before


@pytest.mark.parametrize("option", ["--report", "--predictions"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x" * 250, "the name is too long; choose a shorter one"),
        ("dangling", "no does not exist; create it first"),
        ("in.jsonl/x", "the folder in.jsonl does not exist; create it first"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, name: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text("junk\n")
    Path("dangling").symlink_to("no/where")
    done = CliRunner().invoke(cli, ["replay", "in.jsonl", option, name])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': {name}: " in done.output
    assert says in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "in.jsonl"]


def test_only_what_is_replaced_needs_a_folder_that_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users may write to /dev/stdout, a link, but not to /dev."""
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to("target")
    monkeypatch.setattr("os.access", lambda path, mode: not Path(path).is_dir())
    assert OutFile().convert(str(tmp_path / "link"), None, None) == tmp_path / "link"
    assert OutFile().convert("/dev/null", None, None) == Path("/dev/null")
    with pytest.raises(click.BadParameter, match="is not writable; name a file in another one"):
        OutFile(only_file=True).convert(str(tmp_path / "link"), None, None)
    with pytest.raises(click.BadParameter, match="is not writable; name a file in another one"):
        OutFile().convert(str(tmp_path / "new"), None, None)
    monkeypatch.setattr("os.access", lambda path, mode: mode == os.R_OK)
    with pytest.raises(click.BadParameter, match="link: is not writable; name another file"):
        OutFile().convert(str(tmp_path / "link"), None, None)


def test_files_in_an_object_store_are_kept_apart_by_address_and_devices_not_at_all(tmp_path: Path) -> None:
    keep_apart({"FILES": [Path("s3:/b/in.jsonl"), tmp_path / "in"]}, {"--report": Path("s3://b/other"), "x": ""})
    keep_apart({}, {"--report": Path("/dev/null"), "files.dead_letters": "/dev/null"})
    with pytest.raises(click.UsageError, match=r"--report s3://b/a\.jsonl and FILES s3://b/a\.jsonl are the same"):
        keep_apart({"FILES": [Path("s3:/b/a.jsonl")]}, {"--report": Path("s3:/b/a.jsonl?region=eu-west-1")})


def test_a_report_of_run_does_not_replace_its_config(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("")
    done = CliRunner().invoke(cli, ["run", "-c", str(config), "--report", str(config)])
    assert done.exit_code == 2
    assert f"--report {config} and --config {config} are the same file" in done.output


@pytest.mark.slow
def test_what_simulate_writes_replay_reads(tmp_path: Path) -> None:
    made = streameval("simulate", "traffic.csv", "--seconds", "30", "--rate", "50", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    done = streameval("replay", "traffic.csv", "--report", "report.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.json").is_file()
    assert "calibration" in done.stdout


def test_simulate_writes_to_kafka_also_where_something_is_called_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kafka").mkdir()
    monkeypatch.chdir(tmp_path)
    assert TrafficTarget().convert("kafka", None, None) == Path("kafka")
    with pytest.raises(click.BadParameter, match="is a directory"):
        TrafficTarget().convert(str(tmp_path / "kafka"), None, None)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "out of memory; raise the limit of this process"),
        (ImportError("libarrow.so: failed to map segment from shared object"), "libarrow.so: failed to map segment"),
    ],
)
def test_too_little_memory_is_one_line_and_no_trace(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
