/** Every refusal in plain words, in both languages: what happened, and what to do next. */
import type { Lang, Problem } from './api.ts';
import { countdown } from './format.ts';

export interface ProblemWords {
  title: string;
  next: string;
}

type Teller = (problem: Problem, now: number) => ProblemWords;

/** The codes that api and console gateway document, and two of the page itself: `network` (no answer) and `unexpected`. */
export const CODES = [
  'unknown_lab',
  'lab_unsupported',
  'session_exists',
  'session_ending',
  'capacity',
  'cluster_unknown',
  'bus_unreachable',
  'not_found',
  'no_session',
  'not_ready',
  'extend_limit',
  'unknown_step',
  'invalid_request',
  'payload_too_large',
  'method_not_allowed',
  'unauthorized',
  'forbidden',
  'origin',
  'not_serving',
  'unavailable',
  'internal',
  'unknown_machine',
  'console_unavailable',
  'too_many_viewers',
  'api_unreachable',
  'not_ready_yet',
  'network',
  'unexpected',
] as const;

export type Code = (typeof CODES)[number];

const plain =
  (title: string, next: string): Teller =>
  () => ({ title, next });

function wait(problem: Problem, now: number): string | null {
  if (!problem.expected_at) return null;
  const ms = Date.parse(problem.expected_at) - now;
  return Number.isFinite(ms) && ms > 0 ? countdown(ms) : null;
}

const en: Record<Code, Teller> = {
  unknown_lab: plain('This lab does not exist (any more).', 'Go back to the list and pick one from there.'),
  lab_unsupported: plain('This lab cannot be started here yet.', 'Pick another lab; your teacher knows when this one is ready.'),
  session_exists: plain('You already have a running lab.', 'Go to it, or end it before you start another one.'),
  session_ending: plain('Your earlier machines are still being removed.', 'Wait a moment, then start again.'),
  capacity: (problem, now) => {
    const time = wait(problem, now);
    const taken =
      problem.used !== undefined && problem.cap !== undefined ? ` (${problem.used} of ${problem.cap})` : '';
    return {
      title: `All places are taken${taken}.`,
      next: time ? `The next one is expected to be free in ${time}. Try again then.` : 'Try again in a few minutes.',
    };
  },
  cluster_unknown: plain('The cluster does not answer, so no machine can be started now.', 'Running labs go on. Try again in a minute; if it lasts, tell your teacher.'),
  bus_unreachable: plain('A part of the service is not reachable, so no machine can be started now.', 'Try again in a minute; if it lasts, tell your teacher.'),
  not_found: plain('This does not exist, or it is not yours.', 'Go back to the list of labs.'),
  no_session: plain('You have no running lab.', 'Pick one from the list.'),
  not_ready: plain('The machine is not ready for this.', 'Wait until it says “Ready”. If the lab has ended, start it again.'),
  extend_limit: plain('No more time can be added to this lab.', 'Finish what you can; afterwards you may start it again with a fresh machine.'),
  unknown_step: plain('This lab has no such step.', 'The lab may have been changed. Load the page again.'),
  invalid_request: plain('The server did not understand the request.', 'Load the page again. If it happens again, tell your teacher.'),
  payload_too_large: plain('That was too much at once.', 'Send less.'),
  unauthorized: plain('You are not signed in (any more).', 'Sign in again. Your machine goes on running meanwhile.'),
  forbidden: plain('Your role does not allow this.', 'Sign in with a role that may do it.'),
  origin: plain('The server refused the request because it seems to come from another site.', 'Open the page at its own address, the one that your school gave you, and try again.'),
  method_not_allowed: plain('The server does not do this here.', 'Load the page again. If it happens again, tell your teacher.'),
  not_serving: plain('The service is just starting.', 'Try again in a few seconds.'),
  unavailable: plain('The service cannot answer just now.', 'Try again in a few seconds; your machine goes on running.'),
  internal: plain('Something went wrong on the server.', 'Try again. If it happens again, tell your teacher what you did.'),
  unknown_machine: plain('This lab has no machine of this name.', 'Load the page again.'),
  too_many_viewers: plain('As many pages as one terminal takes show it already.', 'Close one of them.'),
  console_unavailable: plain('The terminal of the machine does not open just now.', 'The page tries again by itself; it may be rebooting.'),
  api_unreachable: plain('The service that knows your lab does not answer.', 'The page tries again by itself; your machine goes on running.'),
  not_ready_yet: plain('The terminal service is starting or stopping.', 'The page tries again by itself.'),
  network: plain('The server does not answer.', 'Look at your connection. The page goes on trying; your machine goes on running.'),
  unexpected: plain('The server gave an answer that this page does not understand.', 'Load the page again. If it happens again, tell your teacher.'),
};

const zh: Record<Code, Teller> = {
  unknown_lab: plain('这个实验不存在（或已被移除）。', '请回到列表重新选择。'),
  lab_unsupported: plain('这个实验目前还不能在这里启动。', '请选择其他实验；老师会知道它什么时候可用。'),
  session_exists: plain('你已经有一个正在进行的实验。', '请先回到那个实验，或者结束它再开始新的。'),
  session_ending: plain('你之前的机器还在删除中。', '请稍等片刻再开始。'),
  capacity: (problem, now) => {
    const time = wait(problem, now);
    const taken = problem.used !== undefined && problem.cap !== undefined ? `（${problem.used} / ${problem.cap}）` : '';
    return {
      title: `所有位置都已占满${taken}。`,
      next: time ? `预计 ${time} 后会有空位，请到时再试。` : '请过几分钟再试。',
    };
  },
  cluster_unknown: plain('集群没有应答，现在无法启动机器。', '正在进行的实验不受影响。请一分钟后再试；如果一直这样，请告诉老师。'),
  bus_unreachable: plain('服务的一部分无法访问，现在无法启动机器。', '请一分钟后再试；如果一直这样，请告诉老师。'),
  not_found: plain('它不存在，或者不属于你。', '请回到实验列表。'),
  no_session: plain('你没有正在进行的实验。', '请从列表中选择一个。'),
  not_ready: plain('机器还没有就绪，不能这样做。', '请等到显示“已就绪”。如果实验已经结束，请重新开始。'),
  extend_limit: plain('这个实验不能再延长了。', '请先完成能做的部分；之后可以用一台全新的机器重新开始。'),
  unknown_step: plain('这个实验没有这一步。', '实验可能被修改过，请重新加载页面。'),
  invalid_request: plain('服务器无法理解这个请求。', '请重新加载页面。如果再次发生，请告诉老师。'),
  payload_too_large: plain('一次发送的内容太多了。', '请减少内容。'),
  unauthorized: plain('你还没有登录，或登录已过期。', '请重新登录。在此期间你的机器会继续运行。'),
  forbidden: plain('你的身份不允许这样做。', '请用有权限的身份登录。'),
  origin: plain('服务器拒绝了请求，因为它看起来来自其他网站。', '请用学校给你的地址打开页面再试。'),
  method_not_allowed: plain('服务器在这里不支持这个操作。', '请重新加载页面。如果再次发生，请告诉老师。'),
  not_serving: plain('服务正在启动。', '请过几秒钟再试。'),
  unavailable: plain('服务暂时无法应答。', '请过几秒钟再试；你的机器会继续运行。'),
  internal: plain('服务器出错了。', '请再试一次。如果再次发生，请告诉老师你做了什么。'),
  unknown_machine: plain('这个实验没有这台机器。', '请重新加载页面。'),
  too_many_viewers: plain('打开这个终端的页面已达上限。', '请先关闭其中一个。'),
  console_unavailable: plain('机器的终端暂时打不开。', '页面会自动重试；机器可能正在重启。'),
  api_unreachable: plain('管理实验的服务没有应答。', '页面会自动重试；你的机器会继续运行。'),
  not_ready_yet: plain('终端服务正在启动或停止。', '页面会自动重试。'),
  network: plain('服务器没有应答。', '请检查网络连接。页面会继续重试；你的机器会继续运行。'),
  unexpected: plain('服务器的应答无法识别。', '请重新加载页面。如果再次发生，请告诉老师。'),
};

const tables: Record<Lang, Record<string, Teller>> = { en, zh };

/**
 * Words for a refusal. A code that this page does not know still gets the server's own words (they are plain,
 * in English) rather than a shrug.
 */
export function tell(problem: Problem, lang: Lang, now: number): ProblemWords {
  const teller = tables[lang][problem.code];
  if (teller) return teller(problem, now);
  const unknown = tables[lang]['unexpected']!(problem, now);
  return { title: problem.title ?? problem.detail ?? unknown.title, next: problem.next ?? unknown.next };
}
