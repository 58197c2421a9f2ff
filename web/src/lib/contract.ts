/**
 * Holds the hand-written shapes of api.ts to the api's own description (`npm run types` makes openapi.d.ts from it):
 * where they differ this file does not compile. Ours may be narrower (a word out of a known list where the
 * description says string); a field that only one side knows is an error. Nothing imports it.
 */
import type { AdminSession, Capacity, Ghosts, PhaseStat } from './admin.svelte.ts';
import type { Check, Lab, Machine, Me, Session, Step, TimelineEntry } from './api.ts';
import type { components } from './openapi.d.ts';

type Theirs = components['schemas'];

/** true, or the names of the fields that only one side has, or of those whose types differ. */
type Agree<Ours, Their> = [Exclude<keyof Ours, keyof Their> | Exclude<keyof Their, keyof Ours>] extends [never]
  ? Ours extends Their
    ? true
    : { [K in keyof Ours & keyof Their as Ours[K] extends Their[K] ? never : K]: [Ours[K], Their[K]] }
  : Exclude<keyof Ours, keyof Their> | Exclude<keyof Their, keyof Ours>;

export const agreed: {
  session: Agree<Session, Theirs['SessionView']>;
  machine: Agree<Machine, Theirs['MachineView']>;
  entry: Agree<TimelineEntry, Theirs['EntryView']>;
  check: Agree<Check, Theirs['CheckView']>;
  lab: Agree<Lab, Theirs['LabView']>;
  step: Agree<Step, Theirs['StepView']>;
  me: Agree<Me, Theirs['Me']>;
  owned: Agree<AdminSession, Theirs['OwnedView']>;
  capacity: Agree<Capacity, Theirs['CapacityView']>;
  ghosts: Agree<Ghosts, Theirs['GhostsView']>;
  phase: Agree<PhaseStat, Theirs['PhaseView']>;
} = {
  session: true,
  machine: true,
  entry: true,
  check: true,
  lab: true,
  step: true,
  me: true,
  owned: true,
  capacity: true,
  ghosts: true,
  phase: true,
};
