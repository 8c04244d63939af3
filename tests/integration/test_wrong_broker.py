"""A wrong address of the brokers ends a command soon, with status 1 and one line that says what to check."""

from __future__ import annotations

import subprocess
import sys

from streameval.sources.kafka.options import START_TIMEOUT

PATIENCE = 120.0  # on a slow machine; of this, START_TIMEOUT is waited for an answer
CASES = [
    (("run",), "confluent", "127.0.0.1:1"),
    (("run",), "kafka-python", "no-such-host.invalid:9092"),
    (("simulate", "kafka", "--seconds", "1"), "confluent", "no-such-host.invalid:9092"),
    (("simulate", "kafka", "--seconds", "1"), "kafka-python", "127.0.0.1:1"),
]


def test_a_command_with_a_wrong_address_ends_with_one_line_that_names_it(tmp_path):
    assert START_TIMEOUT < 25.0  # with the start of the process: 30 s
    processes = []
    for number, (command, client, address) in enumerate(CASES):
        config = tmp_path / f"{number}.toml"
        config.write_text(f'[kafka]\nclient = "{client}"\nbootstrap_servers = "{address}"\n[server]\nport = 0\n')
        call = [sys.executable, "-m", "streameval", *command, "-c", str(config)]
        log = (tmp_path / f"{number}.err").open("wb")
        processes.append(subprocess.Popen(call, stderr=log, stdout=subprocess.DEVNULL, cwd=tmp_path))
        log.close()
    try:
        for number, (_, _, address) in enumerate(CASES):
            status = processes[number].wait(PATIENCE)
            errors = (tmp_path / f"{number}.err").read_text()
            assert status == 1, errors
            named = [line for line in errors.splitlines() if line.startswith("streameval: ")]
            assert len(named) == 1, errors
            assert f'kafka.bootstrap_servers = "{address}": no broker answered within 20 s' in named[0]
            assert "check the address" in named[0]
            assert "ready after" not in errors  # said before anything is compiled
    finally:
        for process in processes:
            process.kill()
            process.wait()
