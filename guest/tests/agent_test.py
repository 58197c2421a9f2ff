#!/usr/bin/python3
"""Tests of agent.py: the real process on a loopback port, with directories of its own. No root needed.

usage: python3 guest/tests/agent_test.py
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import pty
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

AGENT = pathlib.Path(__file__).parents[1] / "agent.py"
TOKEN = "0123456789abcdef" * 4


class Agent:
    """One machine's worth of state; start() and stop() are its boots."""

    def __init__(self, prepare, limit=20, gate=False, **machine):
        self.folder = tempfile.TemporaryDirectory()
        # In memory where that is possible: the agent syncs each phase to disk, and a busy disk takes its time.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.memory = tempfile.TemporaryDirectory(dir=memory)
        self.state = pathlib.Path(self.memory.name)
        code = pathlib.Path(self.folder.name)
        settings = {"token": TOKEN, "prepare_timeout_s": limit, "port": 0, "tty": "/nonexistent", **machine}
        (code / "machine.json").write_text(json.dumps(settings))
        (code / "prepare.sh").write_text(prepare + (self.until_opened() if gate else ""))
        (code / "prepare.sh").chmod(0o755)
        self.start()

    def until_opened(self):
        """A line of shell that waits until open() or, so that nothing is left behind, the end of the test."""
        return f"while [ -d '{self.state}' ] && [ ! -e '{self.state}/gate' ]; do sleep 0.1; done\n"

    def open(self):
        (self.state / "gate").touch()

    def start(self):
        self.process = subprocess.Popen([sys.executable, "-I", AGENT, self.folder.name, self.state],
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def call(self, method, path, body=None, token=TOKEN, headers=None, raw=False):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = dict(headers or {})
        if token is not None:
            headers["Authorization"] = "Bearer " + token
        connection.request(method, path, body if raw or body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data

    def ready(self, query=""):
        status, data = self.call("GET", "/ready" + query)
        assert status == 200, (status, data)
        return json.loads(data)

    def settled(self):
        """The report once the phase is final."""
        end = time.monotonic() + 30
        report = self.ready()
        while report["phase"] not in ("ready", "failed"):
            assert time.monotonic() < end, report
            report = self.ready("?wait=5&phase=" + report["phase"])
        return report

    def exec(self, name, script, timeout_ms=10_000):
        status, data = self.call("POST", "/exec", {"id": name, "script": script, "timeout_ms": timeout_ms})
        return status, json.loads(data)


class AgentTest(unittest.TestCase):
    def agent(self, prepare="#!/bin/sh\n", **settings):
        agent = Agent(prepare, **settings)
        self.addCleanup(agent.folder.cleanup)
        self.addCleanup(agent.memory.cleanup)
        self.addCleanup(agent.stop)
        return agent

    # The file itself

    def test_is_smaller_than_8_KiB(self):
        self.assertLess(AGENT.stat().st_size, 8192)

    # Phases

    def test_exit_0_makes_ready_and_keeps_the_log(self):
        agent = self.agent("#!/bin/sh\necho 你好 from prepare\n")
        report = agent.settled()
        self.assertEqual(report, {"phase": "ready", "cause": None, "exit_code": 0, "log_tail": "你好 from prepare\n"})

    def test_exit_3_makes_failed_with_code_and_log(self):
        report = self.agent("#!/bin/sh\necho no luck >&2\nexit 3\n").settled()
        self.assertEqual(report, {"phase": "failed", "cause": "exit_status", "exit_code": 3, "log_tail": "no luck\n"})

    def test_prepare_that_hangs_is_stopped_with_its_children(self):
        agent = self.agent("#!/bin/sh\nsleep 1000 & echo $!; wait\n", limit=3)
        report = agent.settled()
        self.assertEqual((report["phase"], report["cause"]), ("failed", "timeout"))
        self.assertFalse(is_running(int(report["log_tail"])))

    def test_prepare_killed_by_a_signal_says_so(self):
        report = self.agent("#!/bin/sh\nkill -9 $$\n").settled()
        self.assertEqual((report["phase"], report["cause"], report["exit_code"]), ("failed", "signal", 137))

    def test_missing_interpreter_is_a_failure(self):
        report = self.agent("#!/nonexistent/bash\n").settled()
        self.assertEqual((report["phase"], report["cause"], report["exit_code"]), ("failed", "exit_status", 126))
        self.assertIn("No such file", report["log_tail"])

    def test_megabytes_of_output_leave_the_last_4_KiB(self):
        agent = self.agent("#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' x\necho; echo the end\n")
        report = agent.settled()
        self.assertEqual(report["phase"], "ready")
        self.assertTrue(report["log_tail"].endswith("x\nthe end\n"))
        self.assertEqual(len(report["log_tail"].encode()), 4096)
        self.assertLess((agent.state / "prepare.log").stat().st_size, 70_000)

    def test_bytes_that_are_no_UTF_8_do_not_grow_the_log_tail(self):
        report = self.agent("#!/bin/sh\nhead -c 9000 /dev/zero | tr '\\0' '\\377'\n").settled()
        self.assertLessEqual(len(report["log_tail"].encode()), 4096)

    def test_a_daemon_left_by_prepare_neither_blocks_it_nor_dies(self):
        agent = self.agent("#!/bin/sh\nsleep 1000 & echo $!\n")
        report = agent.settled()
        self.assertEqual(report["phase"], "ready")
        daemon = int(report["log_tail"])
        self.addCleanup(os.kill, daemon, 9)
        self.assertTrue(is_running(daemon))

    def test_a_reboot_keeps_ready_and_does_not_prepare_again(self):
        agent = self.agent('#!/bin/sh\necho x >>"$(dirname "$0")/runs"\n')
        self.assertEqual(agent.settled()["phase"], "ready")
        agent.stop()
        agent.start()
        self.assertEqual(agent.ready()["phase"], "ready")
        self.assertEqual(pathlib.Path(agent.folder.name, "runs").read_text(), "x\n")

    def test_a_reboot_keeps_failed_with_its_cause(self):
        agent = self.agent("#!/bin/sh\necho oops; exit 9\n")
        before = agent.settled()
        agent.stop()
        agent.start()
        self.assertEqual(agent.ready(), before)

    def test_a_reboot_in_the_middle_of_prepare_is_a_failure(self):
        agent = self.agent("#!/bin/sh\n", gate=True)
        while agent.ready()["phase"] != "preparing":
            pass
        agent.stop()
        agent.start()
        report = agent.settled()
        self.assertEqual((report["phase"], report["cause"]), ("failed", "signal"))

    def test_a_failure_that_the_start_script_recorded_stands(self):
        agent = self.agent()
        agent.settled()
        agent.stop()
        (agent.state / "phase").write_text("failed")
        (agent.state / "prepare.exit").write_text('{"cause": "cloud_init", "exit_code": null}')
        (agent.state / "prepare.log").write_text("tar: broken")
        agent.start()
        self.assertEqual(agent.ready(), {"phase": "failed", "cause": "cloud_init", "exit_code": None,
                                         "log_tail": "tar: broken"})

    def test_ready_is_held_until_the_phase_changes(self):
        agent = self.agent("#!/bin/sh\n", gate=True)
        while agent.ready()["phase"] != "preparing":
            pass
        with concurrent.futures.ThreadPoolExecutor() as pool:
            report = pool.submit(agent.ready, "?wait=25&phase=preparing")
            with self.assertRaises(concurrent.futures.TimeoutError):
                report.result(timeout=0.5)
            agent.open()
            self.assertEqual(report.result()["phase"], "ready")

    def test_ready_answers_at_once_where_the_caller_knows_less(self):
        agent = self.agent()
        agent.settled()
        begin = time.monotonic()
        self.assertEqual(agent.ready("?wait=25&phase=booting")["phase"], "ready")
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_long_poll_costs_no_processor_time(self):
        agent = self.agent()
        agent.settled()
        before = processor_time(agent.process.pid)
        agent.ready("?wait=2&phase=ready")
        self.assertLess(processor_time(agent.process.pid) - before, 0.2)

    def test_a_wait_that_is_no_number_is_no_wait(self):
        agent = self.agent()
        for query in "?wait=-1", "?wait=x", "?wait", "?&&==", "?wait=1e9", "?wait=nan":
            self.assertIn(agent.ready(query)["phase"], ("booting", "preparing", "ready"))

    # Who may call

    def test_healthz_needs_no_token(self):
        self.assertEqual(self.agent().call("GET", "/healthz", token=None), (200, b"ok"))

    def test_everything_else_needs_the_token(self):
        agent = self.agent()
        for token in None, "", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "\u00ff" * 64:
            for method, path in ("GET", "/ready"), ("GET", "/x"), ("POST", "/exec"), ("POST", "/tty"), ("POST", "/x"):
                self.assertEqual(agent.call(method, path, token=token)[0], 401, (token, method, path))

    def test_unknown_paths_are_404(self):
        agent = self.agent()
        self.assertEqual(agent.call("GET", "/machine.json")[0], 404)
        self.assertEqual(agent.call("POST", "/ready", {})[0], 404)

    # Graders

    def test_a_grader_runs_with_its_interpreter(self):
        status, answer = self.agent().exec("a", "#!/usr/bin/env python3\nimport sys\nprint('out'); sys.exit(4)\n")
        self.assertEqual((status, answer), (200, {"id": "a", "exit_code": 4, "output": "out\n", "truncated": False,
                                                  "timed_out": False}))

    def test_a_grader_without_shebang_is_a_shell_script(self):
        self.assertEqual(self.agent().exec("a", "echo one\necho two >&2\n")[1]["output"], "one\ntwo\n")

    def test_a_grader_leaves_no_file(self):
        agent = self.agent()
        _, answer = agent.exec("a", "#!/bin/bash\nreadlink /proc/$$/fd/255\n")
        self.assertIn("memfd", answer["output"])

    def test_time_limit_kills_the_whole_group(self):
        _, answer = self.agent().exec("a", "sleep 1000 & echo $!; sleep 1000\n", 3000)
        self.assertTrue(answer["timed_out"])
        self.assertNotEqual(answer["exit_code"], 0)
        self.assertFalse(is_running(int(answer["output"])))

    def test_output_is_capped_while_the_script_goes_on(self):
        _, answer = self.agent().exec("a", "head -c 5000000 /dev/zero | tr '\\0' y\necho the end\n")
        self.assertTrue(answer["truncated"])
        self.assertEqual(answer["exit_code"], 0)
        self.assertEqual(len(answer["output"].encode()), 65536)
        self.assertTrue(answer["output"].endswith("the end\n"))

    def test_a_repeated_id_gets_the_first_result(self):
        agent = self.agent()
        first = agent.exec("same", "date +%N; exit 5\n")
        self.assertEqual(agent.exec("same", "echo other\n"), first)

    def test_a_repeated_id_waits_for_the_first_to_end(self):
        agent = self.agent()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            script = "sleep 1; date +%N\n"
            first, second = pool.map(lambda _: agent.exec("same", script), range(2))
        self.assertEqual(first, second)

    def test_a_second_script_waits_for_the_first(self):
        agent = self.agent()
        agent.settled()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            slow = pool.submit(agent.exec, "slow", agent.until_opened(), 60_000)
            wait_for_script(agent)
            second = pool.submit(agent.exec, "second", "echo done\n", 60_000)
            with self.assertRaises(concurrent.futures.TimeoutError):
                second.result(timeout=0.5)
            agent.open()
            self.assertEqual(second.result()[1]["output"], "done\n")
            self.assertEqual(slow.result()[0], 200)

    def test_a_second_script_that_cannot_wait_gets_busy_and_may_try_again(self):
        agent = self.agent()
        agent.settled()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            slow = pool.submit(agent.exec, "slow", agent.until_opened(), 60_000)
            wait_for_script(agent)
            self.assertEqual(agent.exec("second", "echo x\n", 300), (409, {"error": "busy"}))
            agent.open()
            self.assertEqual(slow.result()[0], 200)
        self.assertEqual(agent.exec("second", "echo x\n")[1]["output"], "x\n")

    def test_many_ids_do_not_grow_the_memory(self):
        agent = self.agent()
        for number in range(20):
            agent.exec(str(number), "exit 7\n")
        self.assertEqual(agent.exec("0", "exit 8\n")[1]["exit_code"], 8)
        self.assertEqual(agent.exec("19", "exit 8\n")[1]["exit_code"], 7)

    # Bad input

    def test_bad_calls_are_400(self):
        agent = self.agent()
        bad = (b"", b"{", b"[]", b"null", b"3", b'{"id":1}', b'{"id":"a","script":3,"timeout_ms":5}', b"\xff\xfe",
               b'{"id":"a","script":"x","timeout_ms":"soon"}', b'{"id":"a","script":"\\ud800","timeout_ms":9}',
               b"[" * 100_000)
        for body in bad:
            self.assertEqual(agent.call("POST", "/exec", body, raw=True)[0], 400, body[:60])
        for body in b"{}", b'{"rows":"x","cols":1}', b'{"rows":24,"cols":80}':
            self.assertEqual(agent.call("POST", "/tty", body, raw=True)[0], 400, body)
        self.assertEqual(agent.call("POST", "/exec", b"", raw=True, headers={"Content-Length": "x"})[0], 400)

    def test_a_huge_body_is_refused_unread(self):
        agent = self.agent()
        for size in "600000", "99999999999", "-1":
            self.assertEqual(agent.call("POST", "/exec", b"", raw=True, headers={"Content-Length": size})[0], 413)

    def test_idle_connections_do_not_exhaust_the_machine(self):
        agent = self.agent()
        agent.settled()
        idle = [socket.create_connection(("127.0.0.1", agent.port)) for _ in range(200)]
        self.addCleanup(lambda: [one.close() for one in idle])
        time.sleep(0.3)
        with open(f"/proc/{agent.process.pid}/status") as status:
            threads = next(int(line.split()[1]) for line in status if line.startswith("Threads:"))
        self.assertLessEqual(threads, 33)
        for one in idle:
            one.close()
        end = time.monotonic() + 10
        while True:
            try:
                self.assertEqual(agent.call("GET", "/healthz")[0], 200)
                return
            except OSError:
                self.assertLess(time.monotonic(), end)

    # The terminal

    def test_tty_sets_rows_and_columns(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        agent = self.agent("#!/bin/sh\nexit 1\n", tty=os.ttyname(slave))
        self.assertEqual(agent.call("POST", "/tty", {"rows": 41, "cols": 123}), (204, b""))
        self.assertEqual(termios.tcgetwinsize(slave) if hasattr(termios, "tcgetwinsize") else window(slave), (41, 123))


def window(line):
    import fcntl
    return struct.unpack("HHHH", fcntl.ioctl(line, termios.TIOCGWINSZ, bytes(8)))[:2]


def wait_for_script(agent):
    """Until the agent has a child process, that is, runs a grader."""
    children = pathlib.Path(f"/proc/{agent.process.pid}/task")
    end = time.monotonic() + 10
    while not any(one.joinpath("children").read_text() for one in children.iterdir() if one.exists()):
        assert time.monotonic() < end


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(") ", 1)[1][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processor_time(pid):
    with open(f"/proc/{pid}/stat") as stat:
        user, system = stat.read().rsplit(") ", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    unittest.main()
