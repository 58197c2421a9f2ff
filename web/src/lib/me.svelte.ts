/** Who is signed in. */
import { api, problemOf, type Me, type Role } from './api.ts';
import { refusal } from './refusal.svelte.ts';

type Standing = 'unknown' | 'in' | 'out' | 'unreachable';

class Account {
  standing = $state<Standing>('unknown');
  me = $state.raw<Me | null>(null);
  /** What this installation offers to those who are not signed in. */
  devLogin = $state(false);
  oidcLogin = $state(false);

  async load(): Promise<void> {
    try {
      const me = await api.me();
      this.me = me;
      this.devLogin = me.dev_login;
      this.standing = 'in';
    } catch (error) {
      const problem = problemOf(error);
      if (problem.code === 'unauthorized') {
        this.devLogin = problem.dev_login === true;
        this.oidcLogin = problem.oidc_login === true;
        this.signedOut();
      } else if (this.standing !== 'in') {
        this.standing = 'unreachable';
      }
    }
  }

  async login(user: string, role: Role): Promise<void> {
    await api.login(user, role);
    refusal.clear();
    await this.load();
  }

  async logout(): Promise<void> {
    try {
      await api.logout();
      refusal.clear();
      await this.load();
    } catch (error) {
      refusal.show(error);
    }
  }

  /** The server says so, or the student does: nothing of theirs stays on the page. */
  signedOut(): void {
    this.me = null;
    this.standing = 'out';
  }

  /** A call was refused for want of a valid sign-in: find out what this installation offers. */
  async expired(): Promise<void> {
    await this.load();
  }

  get isStaff(): boolean {
    return this.me?.roles.some((role) => role !== 'student') ?? false;
  }

  get isAdmin(): boolean {
    return this.me?.roles.includes('admin') ?? false;
  }
}

export const account = new Account();
