/**
 * A pretended stack for working on the page without one, and for the page's own browser test. It serves `dist/`
 * under the Content-Security-Policy of the real one, and scripts sessions. It is not a test double for the
 * services: nothing but the page may be judged by it.
 *
 *   node dev/mock.mjs [--port 4180] [--speed 1]
 *
 * The lab chooses the story (dev/mock-labs.mjs); POST /mock/{cut,idle,life,staff,end} changes it while it runs.
 */
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { parseArgs } from 'node:util';
import { WebSocketServer } from 'ws';
import { Console } from './mock-console.mjs';
import { labs } from './mock-labs.mjs';

const { values } = parseArgs({ options: { port: { type: 'string', default: '4180' }, speed: { type: 'string', default: '1' } } });
const SPEED = Number(values.speed);
const DIST = new URL('../dist', import.meta.url).pathname;
const CSP =
  "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
/** The mock's server clock is off by this much, so that a page that trusts the browser's clock shows it. */
const SKEW_MS = 95_000;

const users = new Map();
const sessions = new Map();
let down = false;

const at = (ms = Date.now()) => new Date(ms + SKEW_MS).toISOString();

class Session {
  constructor(user, lab) {
    this.mock = lab.mock ?? {};
    this.user = user;
    this.labDef = lab;
    this.listeners = new Set();
    this.solved = new Set();
    this.consoles = new Map();
    this.timers = [];
    const now = Date.now();
    this.data = {
      id: crypto.randomUUID(),
      lab: lab.id,
      runtime: 'vm',
      state: 'requested',
      reason: null,
      cause: null,
      message: null,
      log_tail: null,
      machines: lab.machines.map((name) => ({ name, state: 'requested', disk: null, disk_reason: null })),
      timeline: [{ phase: 'requested', machine: null, at: at(now), late: false }],
      created_at: at(now),
      ready_at: null,
      start_deadline: at(now + 240_000),
      expires_at: null,
      idle_at: null,
      extend_until: null,
      extend_step_s: lab.extend_step_s,
      console_url: '',
      checks: [],
      version: 1,
    };
    this.data.console_url = `/api/sessions/${this.data.id}/console`;
    sessions.set(this.data.id, this);
    this.#script();
  }

  #script() {
    const pace = (this.mock.pace ?? 1) / SPEED;
    const facts = [
      [150, 'provisioning', 'provisioning'],
      [500, 'provisioned', 'provisioning'],
      [1_400, 'scheduled', 'booting'],
      [1_900, 'running', 'booting'],
      [5_200, 'agent', 'preparing'],
    ];
    facts.forEach(([ms, phase, state]) =>
      this.data.machines.forEach((machine, index) =>
        this.#later(ms * pace + index * 700, () => {
          if (phase === 'provisioned') Object.assign(machine, { disk: this.mock.disk ?? 'golden', disk_reason: this.mock.disk_reason ?? 'asked' });
          machine.state = state;
          this.data.state = state;
          this.#fact(phase, machine.name);
        }),
      ),
    );
    this.#later(8_000 * pace + 700, () => (this.mock.fail ? this.finish(this.mock.fail, 'exit_status') : this.#ready()));
  }

  #later(ms, fn) {
    this.timers.push(setTimeout(() => this.data.state !== 'ending' && this.data.state !== 'ended' && fn(), ms));
  }

  #fact(phase, machine) {
    this.data.timeline.push({ phase, machine, at: at(), late: false });
    this.change();
  }

  #ready() {
    const now = Date.now();
    const lab = this.labDef;
    this.data.machines.forEach((machine) => {
      machine.state = 'ready';
      this.data.timeline.push({ phase: 'ready', machine: machine.name, at: at(now), late: false });
      this.consoles.set(machine.name, new Console(this, machine.name));
    });
    Object.assign(this.data, {
      state: 'ready',
      ready_at: at(now),
      start_deadline: null,
      expires_at: at(now + lab.life_s * 1000),
      idle_at: at(now + lab.idle_s * 1000),
      extend_until: at(now + (lab.life_s + lab.extend_max_s) * 1000),
    });
    this.#fact('ready', null);
  }

  get live() {
    return !['ending', 'ended'].includes(this.data.state);
  }

  json() {
    return { ...this.data, now: at() };
  }

  change() {
    this.data.version += 1;
    for (const listener of this.listeners) listener();
  }

  touch() {
    this.data.idle_at = at(Date.now() + this.labDef.idle_s * 1000);
    if (Date.now() < (this.quietUntil ?? 0)) return;
    this.quietUntil = Date.now() + 1_000;
    this.change();
  }

  solve(n) {
    this.solved.add(n);
  }

  async check(n, auto) {
    await new Promise((done) => setTimeout(done, 700));
    const ok = this.solved.has(n);
    const output = ok
      ? 'notes.service is loaded, and its program exists.\nok\n'
      : 'notes.service: ExecStart=/usr/local/bin/note-serve\nThat file does not exist. What does /usr/local/bin hold?\n';
    const check = { step: n, outcome: ok ? 'passed' : 'failed', at: at(), output, exit_code: ok ? 0 : 1, truncated: false, cause: null, auto };
    this.data.checks = [...this.data.checks.filter((c) => c.step !== n), check];
    this.change();
    return check;
  }

  finish(reason, cause = null) {
    if (!this.live) return;
    this.data.state = 'ending';
    Object.assign(this.data, { reason, cause, message: cause ? 'Tell your teacher that the set-up script of this lab fails.' : null });
    if (reason === 'prepare_failed') {
      this.data.log_tail = '+ install -d -o notes /var/lib/notes\ninstall: invalid user: ‘notes’\n+ systemctl enable notes-seed.service\nFailed to enable unit: Unit file notes-seed.service does not exist.\nprepare.sh: line 14: exit 1\n';
    }
    for (const console of this.consoles.values()) console.close(4000, reason);
    this.#fact('ending', null);
    setTimeout(() => {
      this.data.state = 'ended';
      this.#fact('ended', null);
    }, 4_000 / SPEED);
  }
}

const routes = [
  ['GET', /^\/api\/me$/, ({ user }) => (user ? [200, { ...user, environment: 'dev', dev_login: true }] : problem(401, 'unauthorized', { dev_login: true }))],
  ['POST', /^\/api\/login$/, ({ body }) => {
    const id = crypto.randomUUID();
    users.set(id, { user: body.user, roles: [body.role] });
    return [200, { user: body.user, roles: [body.role] }, { 'set-cookie': `lab_mock=${id}; HttpOnly; SameSite=Lax; Path=/` }];
  }],
  ['POST', /^\/api\/logout$/, () => [204, null, { 'set-cookie': 'lab_mock=; Max-Age=0; Path=/' }]],
  ['GET', /^\/api\/labs$/, need(() => [200, { labs: labs.map(({ mock, steps, ...lab }) => ({ ...lab, steps: steps.map(({ text, hint, ...step }) => step) })) }])],
  ['GET', /^\/api\/labs\/([^/]+)$/, need(({ match }) => {
    const { mock, ...lab } = labs.find((one) => one.id === match[1]) ?? {};
    return lab.id ? [200, lab] : problem(404, 'unknown_lab');
  })],
  ['POST', /^\/api\/sessions$/, need(({ user, body }) => {
    const lab = labs.find((one) => one.id === body.lab);
    if (!lab) return problem(404, 'unknown_lab');
    const other = mine(user).find((session) => session.live);
    if (other) return problem(409, 'session_exists', { session: other.json() });
    if (lab.mock?.refuse) return problem(409, lab.mock.refuse, { used: 8, cap: 8, expected_at: at(Date.now() + 247_000) });
    return [201, new Session(user, lab).json()];
  })],
  ['GET', /^\/api\/sessions\/current$/, need(({ user }) => {
    const session = mine(user).find((one) => one.data.state !== 'ended');
    return session ? [200, session.json()] : problem(404, 'no_session');
  })],
  ['GET', /^\/api\/sessions\/([^/]+)$/, own(({ session }) => [200, session.json()])],
  ['DELETE', /^\/api\/sessions\/([^/]+)$/, own(({ session }) => {
    session.finish('user');
    return [202, session.json()];
  })],
  ['POST', /^\/api\/sessions\/([^/]+)\/extend$/, own(({ session }) => {
    const until = Date.parse(session.data.extend_until);
    const now = Date.parse(session.data.expires_at);
    if (session.data.state !== 'ready') return problem(409, 'not_ready');
    if (now >= until) return problem(409, 'extend_limit');
    session.data.expires_at = new Date(Math.min(until, now + 900_000)).toISOString();
    session.change();
    return [200, session.json()];
  })],
  ['POST', /^\/api\/sessions\/([^/]+)\/steps\/(\d+)\/check$/, own(async ({ session, match, body }) =>
    session.data.state === 'ready' ? [200, await session.check(Number(match[2]), body.auto === true)] : problem(409, 'not_ready'))],
  ['GET', /^\/api\/sessions\/([^/]+)\/console$/, own(({ session }) => (session.data.state === 'ready' ? [204, null] : problem(409, 'not_ready')))],
  ['GET', /^\/api\/admin\/sessions$/, need(() => [200, { sessions: [...sessions.values()].map((s) => ({ ...s.json(), owner: s.user.user })) }])],
  ['GET', /^\/api\/admin\/capacity$/, need(() => [200, { cap: 8, used: 6, sessions: 6, cluster: 5 }])],
  ['GET', /^\/api\/admin\/stats$/, need(() => [200, { phases: [{ lab: 'systemd-repair', phase: 'boot', count: 41, p50_ms: 2310, p90_ms: 4120 }, { lab: 'systemd-repair', phase: 'start', count: 41, p50_ms: 11800, p90_ms: 16150 }] }])],
  ['GET', /^\/api\/admin\/ghosts$/, need(() => [200, { hold: true, machines: 6, ghosts: [{ uid: 'a1', kind: 'VirtualMachine', name: 'lab-0192f3c1-7a55-7c10-9d3e-55aa10c0ffee-main', session: '0192f3c1-7a55-7c10-9d3e-55aa10c0ffee', machine: 'main', released: false }] }])],
  ['DELETE', /^\/api\/admin\/sessions\/([^/]+)$/, need(({ match }) => {
    sessions.get(match[1])?.finish('admin');
    return sessions.has(match[1]) ? [202, sessions.get(match[1]).json()] : problem(404, 'not_found');
  })],
  ['POST', /^\/api\/admin\/ghosts\/release$/, need(() => [200, {}])],
  ['POST', /^\/mock\/(\w+)$/, ({ match, body }) => {
    const last = [...sessions.values()].at(-1);
    switch (match[1]) {
      case 'cut': // everything is unreachable for a while
        setTimeout(() => {
          down = true;
          for (const socket of sockets) socket.destroy();
        }, 100);
        setTimeout(() => (down = false), (body.ms ?? 8_000) + 100);
        break;
      case 'idle':
        last.data.idle_at = at(Date.now() + (body.ms ?? 280_000));
        last.change();
        break;
      case 'life':
        last.data.expires_at = at(Date.now() + (body.ms ?? 280_000));
        last.change();
        break;
      case 'staff':
        last.mock.staff = true;
        break;
      case 'end':
        last.finish(body.reason ?? 'expired', body.cause ?? null);
        break;
      default:
        return [404, {}];
    }
    return [200, {}];
  }],
];

function problem(status, code, extra = {}) {
  const next = 'Look at the page.';
  return [status, { type: `urn:ttlab:problem:${code}`, title: code, status, code, detail: code, next, ...extra }, { 'content-type': 'application/problem+json' }];
}

function need(handler) {
  return (call) => (call.user ? handler(call) : problem(401, 'unauthorized', { dev_login: true }));
}

function own(handler) {
  return need((call) => {
    const session = sessions.get(call.match[1]);
    return session && session.user.user === call.user.user ? handler({ ...call, session }) : problem(404, 'not_found');
  });
}

function mine(user) {
  return [...sessions.values()].filter((session) => session.user.user === user.user).reverse();
}

const userOf = (request) => users.get(/lab_mock=([\w-]+)/.exec(request.headers.cookie ?? '')?.[1]);

function events(request, response, session) {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const send = () => {
    response.write(`event: session\nid: ${session.data.version}\ndata: ${JSON.stringify(session.json())}\n\n`);
    if (session.data.state === 'ended') response.end();
  };
  session.listeners.add(send);
  request.on('close', () => session.listeners.delete(send));
  send();
}

function file(path, response) {
  const wanted = join(DIST, normalize(path));
  const found = wanted.startsWith(DIST) && existsSync(wanted) && statSync(wanted).isFile();
  const name = found ? wanted : join(DIST, 'index.html');
  response.writeHead(200, { 'content-type': TYPES[extname(name)] ?? 'application/octet-stream', 'content-security-policy': CSP, 'cache-control': 'no-store' });
  createReadStream(name).pipe(response);
}

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return parts.length > 0 ? JSON.parse(Buffer.concat(parts).toString()) : {};
}

const sockets = new Set();
const server = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://mock');
  if (down && !pathname.startsWith('/mock/')) return request.socket.destroy();
  const user = userOf(request);
  const stream = /^\/api\/sessions\/([^/]+)\/events$/.exec(pathname);
  if (stream && sessions.has(stream[1])) return events(request, response, sessions.get(stream[1]));
  const route = routes.find(([method, pattern]) => method === request.method && pattern.test(pathname));
  if (!route) return pathname.startsWith('/api/') ? answer(response, problem(404, 'not_found')) : file(pathname, response);
  answer(response, await route[2]({ user, match: route[1].exec(pathname), body: await bodyOf(request) }));
});

function answer(response, [status, body, headers = {}]) {
  response.writeHead(status, { 'content-type': 'application/json', date: new Date(Date.now() + SKEW_MS).toUTCString(), ...headers });
  response.end(body === null ? undefined : JSON.stringify(body));
}

server.on('connection', (socket) => {
  sockets.add(socket);
  socket.on('close', () => sockets.delete(socket));
});

const upgrades = new WebSocketServer({ noServer: true });
server.on('upgrade', (request, socket, head) => {
  const url = new URL(request.url, 'http://mock');
  const id = /^\/api\/sessions\/([^/]+)\/console$/.exec(url.pathname)?.[1];
  const console = sessions.get(id)?.consoles.get(url.searchParams.get('machine'));
  if (down || !console || sessions.get(id).data.state !== 'ready') return socket.destroy();
  upgrades.handleUpgrade(request, socket, head, (ws) => console.attach(ws, url.searchParams.get('epoch'), Number(url.searchParams.get('offset') ?? 0)));
});

server.listen(Number(values.port), '127.0.0.1', () => {
  console.log(`mock stack on http://127.0.0.1:${server.address().port}`);
});
