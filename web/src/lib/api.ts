/**
 * The typed client of the HTTP api. It knows addresses, shapes and how a refusal looks; it keeps no state.
 *
 * Every call either returns the documented answer or throws `Refused` with a problem document: also when
 * the network is gone (`network`) or a proxy in between answers with something else (`unexpected`), so that
 * no caller has a second error path.
 */
import { clock } from './clock.ts';

export type Lang = 'en' | 'zh';
export type Text = Record<Lang, string>;
export type Role = 'student' | 'teacher' | 'admin';

export interface Me {
  user: string;
  roles: Role[];
  environment: string;
  dev_login: boolean;
}

export interface Step {
  n: number;
  title: Text;
  checkable: boolean;
  auto: boolean;
  text?: Text;
  hint?: Text | null;
}

export interface Lab {
  id: string;
  title: Text;
  summary: Text;
  difficulty: string;
  runtime: string;
  supported: boolean;
  unsupported: string | null;
  life_s: number;
  idle_s: number;
  extend_step_s: number;
  extend_max_s: number;
  machines: string[];
  steps: Step[];
}

export type State =
  | 'queued'
  | 'requested'
  | 'provisioning'
  | 'booting'
  | 'preparing'
  | 'ready'
  | 'ending'
  | 'ended';

export type Reason =
  | 'user'
  | 'expired'
  | 'idle'
  | 'admin'
  | 'provision_failed'
  | 'disk_timeout'
  | 'boot_timeout'
  | 'agent_unreachable'
  | 'prepare_failed'
  | 'prepare_timeout'
  | 'vm_stopped'
  | 'vm_lost';

export type Disk = 'golden' | 'container' | 'datavolume';

export interface Machine {
  name: string;
  state: State;
  disk: Disk | null;
  disk_reason: string | null;
}

export interface TimelineEntry {
  phase: string;
  machine: string | null;
  at: string;
  late: boolean;
}

export interface Check {
  step: number;
  outcome: 'passed' | 'failed' | 'error';
  at: string;
  output: string;
  exit_code: number | null;
  truncated: boolean;
  cause: string | null;
  auto: boolean;
}

export interface Session {
  id: string;
  lab: string;
  runtime: string;
  state: State;
  reason: Reason | null;
  cause: string | null;
  message: string | null;
  log_tail: string | null;
  machines: Machine[];
  timeline: TimelineEntry[];
  created_at: string;
  ready_at: string | null;
  start_deadline: string | null;
  expires_at: string | null;
  idle_at: string | null;
  extend_until: string | null;
  extend_step_s: number;
  console_url: string;
  checks: Check[];
  version: number;
  now: string;
}

export interface Problem {
  code: string;
  title?: string;
  status?: number;
  detail?: string;
  next?: string;
  session?: Session | string;
  used?: number;
  cap?: number;
  expected_at?: string | null;
  dev_login?: boolean;
  oidc_login?: boolean;
}

/** A call that was refused or could not be made; `problem.code` says which. */
export class Refused extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.title ?? problem.code);
    this.name = 'Refused';
    this.problem = problem;
  }
}

export function problemOf(error: unknown): Problem {
  if (error instanceof Refused) return error.problem;
  return { code: 'unexpected', detail: error instanceof Error ? error.message : String(error) };
}

/** How long a call may take before the page says that the server does not answer. A check may run longer. */
const LIMIT_MS = 20_000;
const CHECK_LIMIT_MS = 180_000;

async function call<T>(method: string, path: string, body?: unknown, limit = LIMIT_MS): Promise<T> {
  const init: RequestInit = {
    method,
    credentials: 'same-origin',
    cache: 'no-store',
    headers: { accept: 'application/json' },
    signal: AbortSignal.timeout(limit),
  };
  if (method !== 'GET') {
    init.headers = { accept: 'application/json', 'content-type': 'application/json' };
    init.body = JSON.stringify(body ?? {});
  }
  const sent = Date.now();
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, init);
    text = await response.text();
  } catch (error) {
    throw new Refused({ code: 'network', detail: error instanceof Error ? error.message : String(error) });
  }
  const answer = parse(text);
  setClock(response, answer, sent);
  if (!response.ok) throw new Refused(asProblem(response.status, answer));
  return answer as T;
}

/** Every answer tells the time: a session exactly, any other by its Date header, in whole seconds. */
function setClock(response: Response, answer: unknown, sent: number): void {
  if (isRecord(answer) && typeof answer['now'] === 'string') {
    clock.observe(Date.parse(answer['now']), sent, Date.now());
  } else {
    clock.observe(Date.parse(response.headers.get('date') ?? ''), sent, Date.now(), 1_000);
  }
}

function parse(text: string): unknown {
  if (text === '') return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

/** A refusal without a problem document comes from something in between (a proxy, a starting server). */
export function asProblem(status: number, answer: unknown): Problem {
  if (isRecord(answer) && typeof answer['code'] === 'string') {
    return { ...(answer as object), code: answer['code'], status };
  }
  if (status === 502 || status === 503 || status === 504) return { code: 'network', status };
  return { code: status === 401 ? 'unauthorized' : 'unexpected', status };
}

const path = (id: string): string => `/api/sessions/${encodeURIComponent(id)}`;

export const api = {
  me: () => call<Me>('GET', '/api/me'),
  login: (user: string, role: Role) => call<{ user: string; roles: Role[] }>('POST', '/api/login', { user, role }),
  logout: () => call<null>('POST', '/api/logout'),
  labs: () => call<{ labs: Lab[] }>('GET', '/api/labs'),
  lab: (id: string) => call<Lab>('GET', `/api/labs/${encodeURIComponent(id)}`),
  start: (lab: string) => call<Session>('POST', '/api/sessions', { lab }),
  current: () => call<Session>('GET', '/api/sessions/current'),
  session: (id: string) => call<Session>('GET', path(id)),
  end: (id: string) => call<Session>('DELETE', path(id)),
  extend: (id: string) => call<Session>('POST', `${path(id)}/extend`),
  check: (id: string, step: number, auto: boolean) =>
    call<Check>('POST', `${path(id)}/steps/${step}/check`, { auto }, CHECK_LIMIT_MS),
  events: (id: string) => `${path(id)}/events`,
  adminGet: <T>(what: 'sessions' | 'stats' | 'capacity' | 'ghosts') => call<T>('GET', `/api/admin/${what}`),
  adminEnd: (id: string) => call<Session>('DELETE', `/api/admin/sessions/${encodeURIComponent(id)}`),
  adminRelease: (uids: string[]) => call<unknown>('POST', '/api/admin/ghosts/release', { uids }),
};
