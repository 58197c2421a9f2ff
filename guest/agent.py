#!/usr/bin/python3 -I
"""The TT Lab agent: says whether this machine is ready, and runs graders.

Phases: booting -> preparing -> ready | failed. They are on disk: a reboot changes nothing. prepare.sh
runs once: "preparing" is on disk before it starts; an agent that starts and finds it was cut off."""
import hmac, http.server, json, os, signal, socketserver, subprocess, sys, threading, time

OUTPUT, LOG_TAIL, BODY, THREADS, KEPT = 65536, 4096, 1 << 19, 32, 16
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}


def clip(data, limit):
    text = data.decode("utf-8", "replace").replace("\0", "")
    return text.encode()[-limit:].decode("utf-8", "ignore")


def run(argv, limit, fds=()):
    """(exit code, end of the output, timed out) of argv in a process group of its own.
    All output is read: the script never blocks on it. A child that outlives it is not waited for."""
    tail = bytearray()
    source, sink = os.pipe()

    def drain():
        while data := os.read(source, OUTPUT):
            tail.extend(data)
            del tail[:-OUTPUT - 1]
        os.close(source)

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    late = False
    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd="/",
                                 env=ENV, start_new_session=True, pass_fds=fds)
    except OSError as error:
        return 126, str(error).encode(), False
    finally:
        os.close(sink)
    try:
        child.wait(limit)
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    reader.join(1)
    return code if code >= 0 else 128 - code, bytes(tail), late


class Phases:
    def __init__(self, folder):
        self.folder, self.changed = folder, threading.Condition()
        self.phase = self.read("phase").decode() or "booting"

    def read(self, name):
        try:
            with open(f"{self.folder}/{name}", "rb") as file:
                return file.read()
        except OSError:
            return b""

    def write(self, name, data):
        path = f"{self.folder}/{name}"
        for target in path + ".new", path:  # a full disk has no room for two
            try:
                with open(target, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file)
                return os.replace(target, path)
            except OSError:
                pass

    def move(self, phase, cause=None, code=None):
        if phase != "preparing":
            self.write("prepare.exit", json.dumps({"cause": cause, "exit_code": code}).encode())
        self.write("phase", phase.encode())
        with self.changed:
            self.phase = phase
            self.changed.notify_all()

    def report(self, known, seconds):
        with self.changed:
            known = known or self.phase
            self.changed.wait_for(lambda: self.phase != known, seconds)
        end = json.loads(self.read("prepare.exit") or '{"cause": null, "exit_code": null}')
        return {"phase": self.phase, **end, "log_tail": clip(self.read("prepare.log"), LOG_TAIL)}


def prepare(script, phases, machine):
    if phases.phase == "preparing":
        return phases.move("failed", "signal")
    if phases.phase != "booting":
        return
    phases.move("preparing")
    code, log, late = run([script], machine["prepare_timeout_s"])
    phases.write("prepare.log", log)
    if code:
        return phases.move("failed", "timeout" if late else "signal" if code > 128 else "exit_status", code)
    # The login drops what was typed before the shell was there: ready waits for it.
    tty, end = machine["tty"], time.monotonic() + 20
    while os.path.exists(tty) and os.system(f"pgrep -t {tty[5:]} bash >&2") and time.monotonic() < end:
        time.sleep(0.2)
    phases.move("ready", code=0)


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10  # of each read and write
    machine, phases, grading, graded = {}, None, threading.Lock(), {}

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/healthz":
            self.answer(200, b"ok")
        elif self.is_allowed(path == "/ready"):
            asked = dict(pair.partition("=")[::2] for pair in query.split("&"))
            wait = asked.get("wait", "")
            seconds = min(int(wait), 25) if wait.isdecimal() else 0
            self.answer(200, self.phases.report(asked.get("phase"), seconds))

    def do_POST(self):
        call = {"/exec": self.exec, "/tty": self.tty}.get(self.path)
        if not self.is_allowed(call):
            return
        try:
            size = int(self.headers.get("Content-Length", 0))
            if not 0 <= size <= BODY:
                return self.answer(413)
            self.answer(*call(json.loads(self.rfile.read(size))))
        except Exception as error:  # whatever is wrong with the call
            self.answer(400, {"error": repr(error)[:200]})

    def exec(self, asked):
        """One script at a time; a repeated id gets the first answer."""
        name, script, done = str(asked["id"])[:128], asked["script"].encode(), self.graded
        limit = min(max(int(asked["timeout_ms"]), 1), 600000) / 1000
        end = time.monotonic() + limit
        if name not in done and self.grading.acquire(timeout=limit):
            try:
                if name not in done:
                    done[name] = {"id": name, **grade(script, end - time.monotonic())}
                if len(done) > KEPT:
                    del done[next(iter(done))]
            finally:
                self.grading.release()
        return (200, done[name]) if name in done else (409, {"error": "busy"})

    def tty(self, asked):
        size = "rows", str(int(asked["rows"])), "cols", str(int(asked["cols"]))
        subprocess.run(["stty", "-F", self.machine["tty"], *size], check=True, timeout=5)
        return 204, b""

    def is_allowed(self, known):
        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        allowed = hmac.compare_digest(given, b"Bearer " + self.machine["token"].encode())
        if not (allowed and known):
            self.answer(404 if allowed else 401)
        return allowed and known

    def answer(self, status, value=b""):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", len(body))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def grade(script, limit):
    # In memory: a grader never lies on a disk, nor needs room on one.
    with open(os.memfd_create("grader"), "wb", 0) as file:
        file.write(script)
        first = script.split(b"\n", 1)[0]
        argv = first[2:].split(None, 1) if first[:2] == b"#!" else ["/bin/sh"]
        fd = file.fileno()
        code, output, late = run([*argv, f"/proc/self/fd/{fd}"], limit, [fd])
    return {"exit_code": code, "output": clip(output, OUTPUT), "truncated": len(output) > OUTPUT,
            "timed_out": late}


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    # http.server's own asks DNS for the host's name before it listens.
    allow_reuse_address = daemon_threads = True
    request_queue_size = THREADS

    def verify_request(self, *_):
        return threading.active_count() < THREADS

    def handle_error(self, *_):
        pass  # the client went away


def main(code="/opt/ttlab", state="/var/lib/ttlab"):
    with open(code + "/machine.json") as file:
        machine = {"port": 8899, "tty": "/dev/ttyS0", **json.load(file)}
    Handler.machine, Handler.phases = machine, Phases(state)
    server = Server(("", machine["port"]), Handler)
    threading.Thread(target=prepare, args=(code + "/prepare.sh", Handler.phases, machine), daemon=True).start()
    print("port", server.server_address[1], flush=True)
    server.serve_forever()


main(*sys.argv[1:])
