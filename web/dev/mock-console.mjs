/**
 * The console of the mock: a line-editing pretence of a shell that speaks the console's protocol, with an epoch, a
 * replay buffer, and commands that make the page show what it must (`flood`, `cut`, `newepoch`, `solve N`).
 */
const BUFFER = 256 * 1024;
const PROMPT = '\x1b[1;32mroot@main\x1b[0m:\x1b[1;34m~\x1b[0m# ';

export class Console {
  constructor(session, machine) {
    this.session = session;
    this.machine = machine;
    this.viewers = new Set();
    this.line = '';
    this.#renew();
    this.#out('\r\nDebian GNU/Linux 12 main ttyS0\r\n\r\nmain login: root (automatic login)\r\n\r\nLinux main 6.1.0-28-amd64 #1 SMP x86_64\r\n\r\n' + this.#prompt());
  }

  #prompt() {
    return PROMPT.replaceAll('main', this.machine);
  }

  #renew() {
    this.epoch = Math.random().toString(36).slice(2, 10);
    this.total = 0;
    this.buffer = Buffer.alloc(0);
  }

  attach(ws, epoch, offset) {
    let from = this.total - this.buffer.length;
    let gap = null;
    if (epoch === this.epoch && offset <= this.total) {
      if (offset < from) gap = { from: offset, to: from };
      else from = offset;
    } else if (epoch) {
      gap = { from: 0, to: 4321 };
    }
    ws.send(JSON.stringify({ type: 'hello', epoch: this.epoch, offset: from, machine: this.machine }));
    if (gap) ws.send(JSON.stringify({ type: 'gap', ...gap }));
    const rest = this.buffer.subarray(this.buffer.length - (this.total - from));
    if (rest.length > 0) ws.send(rest);
    this.viewers.add(ws);
    this.#count();
    ws.on('message', (data, binary) => {
      if (binary) this.#input(data.toString('utf8'));
      else if (JSON.parse(data.toString()).type === 'ping') ws.send('{"type":"pong"}');
      else this.size = JSON.parse(data.toString());
    });
    ws.on('close', () => {
      this.viewers.delete(ws);
      this.#count();
    });
  }

  #count() {
    const staff = this.session.mock.staff ? 1 : 0;
    this.#control({ type: 'viewers', count: this.viewers.size + staff, staff });
  }

  #control(message) {
    for (const ws of this.viewers) ws.send(JSON.stringify(message));
  }

  close(code, reason) {
    this.#control({ type: 'ending', reason, message: `The session ends (${reason}).` });
    for (const ws of this.viewers) ws.close(code, reason);
  }

  cut(code) {
    for (const ws of this.viewers) ws.close(code);
  }

  #out(text) {
    const bytes = Buffer.from(text);
    this.total += bytes.length;
    this.buffer = Buffer.concat([this.buffer, bytes]).subarray(-BUFFER);
    for (const ws of this.viewers ?? []) ws.send(bytes);
  }

  #input(text) {
    this.session.touch();
    for (const char of text) {
      if (char === '\r') this.#run();
      else if (char === '\x7f') {
        if (this.line !== '') this.#out('\b \b');
        this.line = this.line.slice(0, -1);
      } else if (char === '\x03') {
        this.line = '';
        this.#out(`^C\r\n${this.#prompt()}`);
      } else if (char >= ' ') {
        this.line += char;
        this.#out(char);
      }
    }
  }

  #run() {
    const [command = '', ...rest] = this.line.trim().split(/\s+/);
    this.line = '';
    this.#out('\r\n');
    const answer = this.#command(command, rest);
    this.#out((answer ? `${answer.replace(/\n/g, '\r\n')}\r\n` : '') + this.#prompt());
  }

  #command(command, rest) {
    switch (command) {
      case '':
        return '';
      case 'echo':
        return rest.join(' ').replace(/\$\(\((\d+)\+(\d+)\)\)/g, (_, a, b) => String(Number(a) + Number(b))).replace(/^"|"$/g, '');
      case 'solve':
        this.session.solve(Number(rest[0]));
        return '';
      case 'flood':
        for (let i = 0; i < 20_000; i += 20) {
          this.#out(Array.from({ length: 20 }, (_, k) => `line ${i + k} \x1b[3${k % 8}mcolour\x1b[0m ${'.'.repeat((i + k) % 60)}\r\n`).join(''));
        }
        return 'flood over';
      case 'cut':
        setTimeout(() => this.cut(1012), 10);
        return '';
      case 'newepoch':
        setTimeout(() => {
          this.cut(4001);
          this.#renew();
          this.#out(this.#prompt());
        }, 10);
        return '';
      case 'poweroff':
        setTimeout(() => this.session.finish('vm_stopped', 'guest_shutdown'), 300);
        return 'The system will power off now!';
      case 'stty':
        return `rows ${this.size?.rows}; columns ${this.size?.cols};`;
      case 'ls':
        return '\x1b[1;34mnotes\x1b[0m  README  \x1b[1;32mserve.sh\x1b[0m';
      case 'systemctl':
        return rest[0] === 'status'
          ? '\x1b[1;31m×\x1b[0m notes.service - Note keeper\n     Loaded: loaded (/etc/systemd/system/notes.service; \x1b[1;33mdisabled\x1b[0m)\n     Active: \x1b[1;31mfailed\x1b[0m (Result: exit-code) since Tue 2026-12-01 15:20:11 UTC; 41s ago\n    Process: 412 ExecStart=/usr/local/bin/note-serve (code=exited, \x1b[1;31mstatus=203/EXEC\x1b[0m)\n\nDec 01 15:20:11 main systemd[1]: Started notes.service - Note keeper.\nDec 01 15:20:11 main (te-serve)[412]: notes.service: \x1b[1;31mFailed to locate executable\x1b[0m\n\x1b[1;33mhttps://www.freedesktop.org/software/systemd/man/systemd.exec.html\x1b[0m'
          : '';
      default:
        return `-bash: ${command}: command not found`;
    }
  }
}
