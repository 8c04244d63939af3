"""What a source promises to the keeper of its partitions, on a real broker, with both clients."""

from __future__ import annotations

import importlib.util
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from streameval.sources.protocol import SourceError

pytestmark = pytest.mark.kafka
SCRIPT = Path(__file__).with_name("group_member.py")
_spec = importlib.util.spec_from_file_location("group_member", SCRIPT)
group_member = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(group_member)

PATIENCE = 180.0  # seconds, on a slow machine
SESSION_MS = 6_000  # the shortest that brokers allow by default
QUICK = {
    "confluent": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000},
    "kafka-python": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1_000},
}
started = []  # the members of the test under way
PROTOCOLS = [("confluent", "range"), ("confluent", "consumer"), ("kafka-python", "range")]


class Member:
    """A source with its keeper, in a thread of its own as every worker is, until it leaves."""

    def __init__(self, lab, settings, folder, max_events=50):
        self.keeper = group_member.CountingKeeper(folder)
        self.source = lab.source(settings, keeper=self.keeper, max_events=max_events)
        self.failure = None
        self.lock = threading.Lock()  # held by the thread during a poll, and by whoever looks
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)
        started.append(self)
        self.thread.start()

    def _run(self):
        try:
            while not self.stopped.is_set():
                with self.lock:
                    self.keeper.deliver(self.source.poll(0.1))
                    self.source.commit(self.keeper.next)  # what the group answers is heard, too
                time.sleep(0.001)  # so that others get the lock
        except BaseException as failure:
            self.failure = failure

    def held(self):
        with self.lock:
            return sorted(self.keeper.counted)

    def total(self):
        with self.lock:
            return Counter((p, event) for p, events in self.keeper.counted.items() for event in events)

    def lag(self):
        with self.lock:
            return self.source.lag()

    def halt(self):
        self.stopped.set()
        self.thread.join(PATIENCE)

    def stop(self):
        self.halt()
        if self.failure is not None:
            raise self.failure

    def leave(self):
        self.stop()
        self.keeper.write()
        self.source.close()


def until(members, reached):
    """Waits, while all members work."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        for member in members:
            if member.failure is not None:
                raise member.failure
        assert time.monotonic() < deadline, [(m.held(), m.keeper.calls) for m in members]
        time.sleep(0.05)


def shared_out(members, partitions):
    """True when every partition is one member's, and every member has some."""
    held = [member.held() for member in members]
    return all(held) and sorted(p for some in held for p in some) == list(range(partitions))


def named(member, word):
    """The partitions of all calls of that name, in order."""
    return [p for call, partitions in member.keeper.calls if call == word for p in partitions]


def total(members):
    """What all of them have counted, and how often."""
    return sum((member.total() for member in members), Counter())


def fill(lab, impressions, clicks, partitions, wave, size=40):
    for p in range(partitions):
        lab.write(lab.impressions, impressions(wave * size, size), p)
        lab.write(lab.clicks, clicks(wave * size // 4, size // 4), p)


def written(partitions, waves, size=40):
    return Counter(
        {(p, f"i{i}"): 1 for p in range(partitions) for i in range(waves * size)}
        | {(p, f"c{i}"): 1 for p in range(partitions) for i in range(waves * size // 4)}
    )


@pytest.fixture
def store(tmp_path):
    """The folder that a test's members share. Ends their threads, before the laboratory closes their sources."""
    folder = tmp_path / "store"
    folder.mkdir()
    yield folder
    while started:
        started.pop().halt()


@pytest.fixture(params=PROTOCOLS, ids="-".join)
def group(request, laboratory, real_kafka):
    """A laboratory and settings of one group, for each client and protocol."""
    client, protocol = request.param
    lab = laboratory(real_kafka, client)
    options = {"group.protocol": "consumer"} if protocol == "consumer" else QUICK[client]
    return lab, lab.settings(client_options=options)


def test_members_that_join_and_leave_count_every_event_once(group, store, impressions, clicks):
    lab, settings = group
    lab.create(lab.impressions, lab.clicks, partitions=6)
    members = [Member(lab, settings, store)]
    waves = 0

    def wave():
        nonlocal waves
        fill(lab, impressions, clicks, 6, waves, size=800)  # so that there is always something to deliver
        waves += 1

    wave()
    until(members, lambda: shared_out(members, 6))
    for _ in range(2):
        members.append(Member(lab, settings, store))
        wave()
        until(members, lambda: shared_out(members, 6))
        wave()
    gone = members.pop(0)
    gone.leave()
    wave()
    until(members, lambda: shared_out(members, 6) and sum(total(members).values()) >= waves * 6 * 1_000)
    assert total(members) == written(6, waves, size=800)
    for member in members:
        member.leave()


def test_a_partition_that_stays_keeps_its_state_and_is_not_taken_again(group, store, impressions, clicks, caplog):
    lab, settings = group
    lab.create(lab.impressions, lab.clicks, partitions=4)
    fill(lab, impressions, clicks, 4, 0)
    one = Member(lab, settings, store)
    until([one], lambda: sum(total([one]).values()) == 200)
    two = Member(lab, settings, store)
    until([one, two], lambda: shared_out([one, two], 4))
    kept, gone = one.held(), two.held()
    if "lost partitions" not in caplog.text:  # on a slow machine, the group may need two generations to settle
        assert named(one, "take") == [0, 1, 2, 3]
        assert named(one, "drop") == gone
        released = named(one, "release")
        assert set(gone) <= set(released)
        if settings.client_options.get("group.protocol") == "consumer":
            assert not set(kept) & set(released)  # incremental: what stays is not even asked for
    until([one, two], lambda: total([one, two]) == written(4, 1))  # at once, but for what was lost and is read again


def test_the_groups_offsets_are_not_read_with_a_keeper(real_lab, store, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    fill(real_lab, impressions, clicks, 1, 0)
    settings = real_lab.settings()
    first = real_lab.source(settings)
    drain(first, 50)
    first.commit({(real_lab.impressions, 0): 40, (real_lab.clicks, 0): 10})
    first.close()
    (store / "0.json").write_text(json.dumps([{real_lab.clicks: 7}, []]))
    member = Member(real_lab, settings, store)
    until([member], lambda: sum(total([member]).values()) >= 43)
    member.stop()
    assert member.keeper.counted[0].count("i0") == 1  # kafka.start, not the committed 40
    assert [e for e in member.keeper.counted[0] if e.startswith("c")] == ["c7", "c8", "c9"]


def test_a_state_that_cannot_be_used_ends_the_poll(real_lab, impressions, clicks):
    class Broken(group_member.CountingKeeper):
        def take(self, partitions):
            raise SourceError(f"partition {min(partitions)}: broken")

    real_lab.create(real_lab.impressions, real_lab.clicks)
    source = real_lab.source(keeper=Broken(Path()))
    deadline = time.monotonic() + PATIENCE
    with pytest.raises(SourceError, match="partition 0: broken"):
        while time.monotonic() < deadline:
            source.poll(0.1)


def test_closing_tells_the_keeper_nothing(real_lab, store, impressions, clicks):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    member = Member(real_lab, real_lab.settings(), store)
    until([member], lambda: member.held() == [0, 1, 2, 3])
    member.stop()
    member.source.close()
    assert member.keeper.calls == [("take", [0, 1, 2, 3])]


def member_ids(lab, settings):
    """As the group's coordinator knows them."""
    admin = AdminClient({"bootstrap.servers": lab.address})
    (found,) = admin.describe_consumer_groups([settings.group_id]).values()
    return {member.member_id for member in found.result(PATIENCE).members}


def test_a_release_may_take_longer_than_the_session(client, laboratory, real_kafka, store, impressions, clicks):
    lab = laboratory(real_kafka, client)
    lab.create(lab.impressions, lab.clicks, partitions=2)
    settings = lab.settings(client_options=QUICK[client])
    one = Member(lab, settings, store)
    fill(lab, impressions, clicks, 2, 0)
    until([one], lambda: sum(total([one]).values()) == 100)
    before = member_ids(lab, settings)
    one.keeper.patience = 1.5 * SESSION_MS / 1_000
    two = Member(lab, settings, store)
    until([two, one], lambda: shared_out([one, two], 2))
    assert before < member_ids(lab, settings)  # it was never thrown out
    assert one.keeper.calls[:2] == [("take", [0, 1]), ("release", [0, 1])]
    assert total([one, two]) == written(2, 1)


class Process:
    """A member in a process of its own, which polls when it is told to."""

    def __init__(self, lab, settings, folder):
        command = [
            sys.executable, str(SCRIPT), lab.client, lab.address, settings.group_id, lab.impressions, lab.clicks,
            str(folder), json.dumps(dict(settings.client_options)),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def heard(self):
        line = self.process.stdout.readline()
        assert line, "the member has ended"
        return json.loads(line)

    def step(self):
        self.tell("poll")
        return self.heard()

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


def test_a_member_that_was_frozen_drops_before_it_delivers(client, laboratory, real_kafka, store, impressions, clicks):
    lab = laboratory(real_kafka, client)
    lab.create(lab.impressions, lab.clicks, partitions=2)
    # it takes 10 events a poll, so its queues are full when it freezes
    fill(lab, impressions, clicks, 2, 0, size=4_000)
    settings = lab.settings(client_options=QUICK[client])
    frozen = Process(lab, settings, store)
    try:
        deadline = time.monotonic() + PATIENCE
        seen = 0
        while seen < 100:
            assert time.monotonic() < deadline
            seen += sum(frozen.step()["counted"].values())
        frozen.tell("stop")
        other = Member(lab, settings, store, max_events=500)
        until([other], lambda: other.held() == [0, 1] and sum(total([other]).values()) > 2_000)
        frozen.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE
        answers = [frozen.heard()]
        while not any(answer["calls"] for answer in answers):
            assert time.monotonic() < deadline
            answers.append(frozen.step())
        assert not any(answer["counted"] for answer in answers[:-1])
        (word, partitions), *_ = answers[-1]["calls"]
        assert (word, partitions) == ("drop", [0, 1])
        assert not answers[-1]["counted"]
        words = ["drop"]
        while len(words) < 2:  # it comes back as a new member
            assert time.monotonic() < deadline
            answers.append(frozen.step())
            words = [word for answer in answers for word, _ in answer["calls"]]
        # what it dropped is not released as well; what it took since may be, when the members share out anew
        assert words[:2] == ["drop", "take"]
        # The two may hear of the same assignment at different times, or need another one, for which both must poll.
        until([other], lambda: frozen.step() and not shared_out([other], 2))
    finally:
        frozen.close()


@pytest.mark.parametrize(("client", "protocol"), PROTOCOLS)
def test_a_static_member_that_restarts_gets_its_partitions_back_and_nobody_else_hears_of_it(
    client, protocol, laboratory, real_kafka, store, impressions, clicks
):
    lab = laboratory(real_kafka, client)
    lab.create(lab.impressions, lab.clicks, partitions=4)
    name = {"confluent": "group.instance.id", "kafka-python": "group_instance_id"}[client]
    options = {"group.protocol": "consumer"} if protocol == "consumer" else {}  # session: 45 s
    settings = lab.settings()
    settings = [settings.model_copy(update={"client_options": {**options, name: f"worker-{k}"}}) for k in range(2)]
    members = [Member(lab, one, store) for one in settings]
    until(members, lambda: shared_out(members, 4))
    before = members[0].held()
    heard = list(members[1].keeper.calls)
    members[0].leave()
    fill(lab, impressions, clicks, 4, 0)
    members[0] = Member(lab, settings[0], store)
    until(members, lambda: shared_out(members, 4) and sum(total(members).values()) >= 200)
    assert members[0].held() == before
    assert members[1].keeper.calls == heard
    assert total(members) == written(4, 1)


def test_a_member_whose_name_another_process_has_taken_drops_and_says_so(
    client, laboratory, real_kafka, store, impressions, clicks
):
    lab = laboratory(real_kafka, client)
    lab.create(lab.impressions, lab.clicks, partitions=2)
    name = {"confluent": "group.instance.id", "kafka-python": "group_instance_id"}[client]
    settings = lab.settings(client_options={**QUICK[client], name: "worker"})
    one = Member(lab, settings, store)
    fill(lab, impressions, clicks, 2, 0)
    until([one], lambda: sum(total([one]).values()) == 100)
    two = Member(lab, settings, store)
    until([two], lambda: two.held() == [0, 1] and one.failure is not None)
    assert isinstance(one.failure, SourceError)
    assert name in str(one.failure)
    assert [word for word, _ in one.keeper.calls] == ["take", "drop"]


def test_messages_deleted_before_a_keepers_offset_are_counted_and_said_loudly(
    real_lab, stored, impressions, clicks, drain, caplog
):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    fill(real_lab, impressions, clicks, 1, 0)
    real_lab.delete_before(real_lab.impressions, 0, 25)
    source = real_lab.source(keeper=stored({(real_lab.impressions, 0): 10}))
    with caplog.at_level(logging.ERROR, "streameval"):
        arrived = drain(source, 15 + 10)
    assert arrived.impressions[0] == list(range(25, 40))
    assert source.lost() == {(real_lab.impressions, 0): 15}
    expected = f"{real_lab.impressions} [0]: offsets 10 to 24 were deleted before they were read: 15 messages lost"
    assert expected in caplog.text
