import { beforeEach, describe, expect, it } from 'vitest';
import { ConsoleClient } from '../src/lib/console.ts';
import { consoleUrl, type Link, type Sink, type Socket, type World } from '../src/lib/console-world.ts';

class FakeSocket implements Socket {
  binaryType = '';
  readyState = 0;
  bufferedAmount = 0;
  onopen = null;
  onmessage: Socket['onmessage'] = null;
  onclose: Socket['onclose'] = null;
  onerror = null;
  sent: (string | Uint8Array)[] = [];
  closed = false;

  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  send(data: string | Uint8Array): void {
    this.sent.push(data);
  }

  close(): void {
    this.closed = true;
    this.readyState = 3;
  }

  control(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  hello(epoch: string, offset: number): void {
    this.readyState = 1;
    this.control({ type: 'hello', epoch, offset, machine: 'main' });
  }

  bytes(text: string): void {
    this.onmessage?.({ data: new TextEncoder().encode(text).buffer });
  }

  drop(code: number, reason = ''): void {
    this.readyState = 3;
    this.onclose?.({ code, reason });
  }
}

class FakeWorld implements World {
  sockets: FakeSocket[] = [];
  time = 1_000_000;
  refusal: string | null = 'network';
  #timers = new Map<number, { at: number; fn: () => void }>();
  #next = 1;

  open(url: string): Socket {
    const socket = new FakeSocket(url);
    this.sockets.push(socket);
    return socket;
  }

  whyNot = async (): Promise<string | null> => this.refusal;
  now = (): number => this.time;
  random = (): number => 1;

  setTimeout(fn: () => void, ms: number): number {
    this.#timers.set(this.#next, { at: this.time + ms, fn });
    return this.#next++;
  }

  clearTimeout(id: number): void {
    this.#timers.delete(id);
  }

  pass(ms: number): void {
    const end = this.time + ms;
    for (;;) {
      const due = [...this.#timers].filter(([, t]) => t.at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.time = due[1].at;
      due[1].fn();
    }
    this.time = end;
  }

  get last(): FakeSocket {
    return this.sockets.at(-1)!;
  }
}

let world: FakeWorld;
let text: string;
let writes: number;
let gaps: number[];
let history: number[];
let renewed: number;
let replays: boolean[];
let links: Link[];
let hold: Promise<void> | null;
let client: ConsoleClient;

const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 0));

beforeEach(() => {
  world = new FakeWorld();
  text = '';
  writes = 0;
  gaps = [];
  history = [];
  renewed = 0;
  replays = [];
  links = [];
  hold = null;
  const sink: Sink = {
    write: async (chunk) => {
      writes += 1;
      text += new TextDecoder().decode(chunk);
      if (hold) await hold;
    },
    renewed: () => (renewed += 1),
    gap: (lost, earlier) => (earlier ? history : gaps).push(lost),
    replaying: (on) => replays.push(on),
    link: (link) => links.push(link),
    viewers: () => undefined,
    ending: () => undefined,
  };
  client = new ConsoleClient('http://h/c?machine=main', sink, world);
  client.connect();
});

describe('the console client', () => {
  it('asks for what it lacks, and for no more, when it dials again', async () => {
    expect(world.last.url).toBe('http://h/c?machine=main');
    world.last.hello('e1', 100);
    world.last.bytes('hello ');
    world.last.drop(1006);
    await settle();
    world.pass(300);
    expect(world.last.url).toBe('http://h/c?machine=main&epoch=e1&offset=106');
    world.last.hello('e1', 106);
    world.last.bytes('world');
    await settle();
    expect(text).toBe('hello world');
    expect(gaps).toEqual([]);
    expect(renewed).toBe(0);
  });

  it('believes the offset of a hello, and shows the gap', () => {
    world.last.hello('e1', 0);
    world.last.bytes('x');
    world.last.drop(1012);
    world.pass(300);
    world.last.hello('e1', 5000);
    world.last.control({ type: 'gap', from: 1, to: 5000 });
    expect(gaps).toEqual([4999]);
    expect(client.url()).toContain('offset=5000');
  });

  it('counts on behind a gap in the middle of the stream', () => {
    world.last.hello('e1', 0);
    world.last.bytes('abc');
    world.last.control({ type: 'gap', from: 3, to: 10 });
    world.last.bytes('def');
    expect(gaps).toEqual([7]);
    expect(client.url()).toContain('offset=13');
  });

  it('does not call a loss what happened before it was there', () => {
    world.last.hello('e1', 900);
    world.last.control({ type: 'gap', from: 0, to: 900 });
    expect(history).toEqual([900]);
    expect(gaps).toEqual([]);
  });

  it('tells of a new epoch', () => {
    world.last.hello('e1', 0);
    world.last.drop(4001);
    world.pass(300);
    world.last.hello('e2', 0);
    expect(renewed).toBe(1);
    expect(client.url()).toContain('epoch=e2&offset=0');
  });

  it('knows when the kept bytes are over, and that a resumed stream has none', async () => {
    world.last.hello('e1', 0);
    world.last.bytes('\x1b[6n');
    expect(replays).toEqual([true]);
    world.last.control({ type: 'viewers', count: 1, staff: 0 });
    await settle();
    expect(replays).toEqual([true, false]);
    world.last.drop(1006);
    await settle();
    world.pass(300);
    world.last.hello('e1', 4);
    expect(replays).toEqual([true, false]);
  });

  it('does not stay silent when nobody says that the kept bytes are over', async () => {
    world.last.hello('e1', 0);
    world.pass(2_000);
    await settle();
    expect(replays).toEqual([true, false]);
  });

  it('waits longer each time, but not for ever', async () => {
    const waits: number[] = [];
    for (let i = 0; i < 8; i++) {
      const before = world.time;
      world.last.drop(1006);
      await settle();
      const link = links.at(-1);
      if (link?.state === 'waiting') waits.push(link.retryAt - before);
      world.pass(8_000);
    }
    expect(waits).toEqual([250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
  });

  it('starts small again after a connection that held', async () => {
    for (let i = 0; i < 4; i++) {
      world.last.drop(1006);
      await settle();
      world.pass(8_000);
    }
    world.last.hello('e1', 0);
    world.pass(6_000);
    world.last.drop(1006);
    const link = links.at(-1);
    expect(link?.state === 'waiting' && link.retryAt - world.time).toBe(250);
  });

  it('stays closed when the session has ended', () => {
    world.last.hello('e1', 0);
    world.last.drop(4000, 'expired');
    world.pass(60_000);
    expect(world.sockets).toHaveLength(1);
    expect(links.at(-1)).toEqual({ state: 'over', reason: 'expired' });
  });

  it('gives up on a refusal that cannot change, and goes on after one that can', async () => {
    world.refusal = 'not_ready';
    world.last.drop(1006);
    await settle();
    expect(links.at(-1)).toMatchObject({ state: 'waiting', code: 'not_ready' });
    world.pass(8_000);
    expect(world.sockets.length).toBeGreaterThan(1);
    world.refusal = 'not_found';
    world.last.drop(1006);
    await settle();
    const dialled = world.sockets.length;
    world.pass(60_000);
    expect(world.sockets).toHaveLength(dialled);
    expect(links.at(-1)).toEqual({ state: 'refused', code: 'not_found' });
  });

  it('notices an end that went silent', () => {
    world.last.hello('e1', 0);
    world.pass(15_000);
    expect(world.last.sent).toContain('{"type":"ping"}');
    world.last.control({ type: 'pong' });
    world.pass(14_000);
    expect(world.sockets).toHaveLength(1);
    world.pass(12_000);
    expect(world.sockets[0]?.closed).toBe(true);
    expect(world.sockets.length).toBeGreaterThan(1);
  });

  it('sends the size after each hello', () => {
    client.resize(40, 120);
    expect(world.last.sent).toEqual([]);
    world.last.hello('e1', 0);
    expect(world.last.sent).toEqual(['{"type":"resize","rows":40,"cols":120}']);
  });

  it('drops what is typed while there is no connection', () => {
    expect(client.input(new TextEncoder().encode('rm -rf x\r'))).toBe(false);
    world.last.hello('e1', 0);
    expect(world.last.sent).toEqual([]);
  });

  it('sends a paste in pieces and waits for the socket', () => {
    world.last.hello('e1', 0);
    world.last.bufferedAmount = 100_000;
    client.input(new Uint8Array(10_000));
    expect(world.last.sent).toHaveLength(0);
    world.last.bufferedAmount = 0;
    world.pass(20);
    expect(world.last.sent.map((piece) => piece.length)).toEqual([4096, 4096, 1808]);
  });

  it('writes what piled up while the terminal was busy in one piece', async () => {
    let free = (): void => undefined;
    hold = new Promise((done) => (free = done));
    world.last.hello('e1', 0);
    for (let i = 0; i < 50; i++) world.last.bytes('x');
    expect(writes).toBe(1);
    hold = null;
    free();
    await settle();
    expect(writes).toBe(2);
    expect(text).toBe('x'.repeat(50));
  });

  it('bounds what waits for a terminal that takes nothing, and says what it dropped', () => {
    hold = new Promise(() => undefined);
    world.last.hello('e1', 0);
    const chunk = 'y'.repeat(1024 * 1024);
    for (let i = 0; i < 7; i++) world.last.bytes(chunk);
    expect(gaps.reduce((a, b) => a + b, 0)).toBe(2 * 1024 * 1024);
  });
});

describe('the console address', () => {
  it('is on the same host and names the machine', () => {
    expect(consoleUrl('https://lab.example/sessions/1', '/api/sessions/1/console', 'main')).toBe('https://lab.example/api/sessions/1/console?machine=main');
  });
});
