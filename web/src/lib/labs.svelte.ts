/** The catalogue: the list once, each lab's texts when they are first needed. */
import { api, problemOf, type Lab, type Problem } from './api.ts';
import { account } from './me.svelte.ts';

class Labs {
  list = $state.raw<Lab[] | null>(null);
  problem = $state.raw<Problem | null>(null);
  full = $state.raw<Record<string, Lab>>({});
  missing = $state.raw<Record<string, Problem>>({});

  async load(): Promise<void> {
    this.problem = null;
    try {
      this.list = (await api.labs()).labs;
    } catch (error) {
      this.problem = problemOf(error);
      if (this.problem.code === 'unauthorized') await account.expired();
    }
  }

  async open(id: string): Promise<void> {
    try {
      const lab = await api.lab(id);
      this.full = { ...this.full, [id]: lab };
      const { [id]: _, ...rest } = this.missing;
      this.missing = rest;
    } catch (error) {
      const problem = problemOf(error);
      this.missing = { ...this.missing, [id]: problem };
      if (problem.code === 'unauthorized') await account.expired();
    }
  }

  /** The lab as far as it is known. */
  find(id: string): Lab | null {
    return this.full[id] ?? this.list?.find((lab) => lab.id === id) ?? null;
  }
}

export const labs = new Labs();
