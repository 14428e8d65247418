// What a change would lead to, as lines: [{ sign, text }]. "+" begins, "-" ends, "~" changes, "!" finds no place.
import { count, short_id } from './format.js';
import { name_of } from './spec.js';

/** @typedef {import('../live/answers').Plan['actions'][number]} Step */
/** @type {(of: Step['after']) => string} */
const place = (of) => `${of?.node ?? 'nowhere'}${of?.devices.length ? ` (${of.devices.map(short_id).join(', ')})` : ''}`;

/** @type {(step: Step) => { sign: string, text: string }} */
function line_of({ action, deployment, replica, before, after }) {
  const name = `${deployment}/${replica}`;
  if (action === 'start') return { sign: '+', text: `${name} starts on ${place(after)}` };
  if (action === 'stop') return { sign: '-', text: `${name} stops on ${place(before)}` };
  return { sign: '~', text: `${name} moves from ${place(before)} to ${place(after)}` };
}

// `pending_now`: what already has no place, so not a consequence of the change.
/** @type {(answer: { plan: import('../live/answers').Plan, changes?: import('../live/answers').Applied['changes'], restarts?: string[] }, pending_now?: import('../live/answers').Pending[]) => { sign: string, text: string }[]} */
export function lines_of({ plan, changes = [], restarts = [] }, pending_now = []) {
  const names_of = (/** @type {{ deployment: string, replicas: number[] }} */ entry) => (entry.replicas.length ? entry.replicas : ['all']).map((index) => `${entry.deployment}/${index}`);
  const known = new Set(pending_now.flatMap(names_of));
  const moved = new Set(plan.actions.map((action) => `${action.deployment}/${action.replica}`));
  const fields = changes.filter((change) => change.fields?.length).map((change) => ({ sign: '~', text: `${change.deployment} changes: ${change.fields?.map(name_of).join(', ')}` }));
  const again = restarts.filter((name) => !moved.has(name)).map((name) => ({ sign: '~', text: `${name} is replaced by a new one` }));
  const without = plan.pending.flatMap((entry) => {
    const names = names_of(entry).filter((name) => !known.has(name));
    return names.length ? [{ sign: '!', text: `${names.length > 3 ? count(names.length, `replica of ${entry.deployment} has`, `replicas of ${entry.deployment} have`) : `${names.join(', ')} ${names.length === 1 ? 'has' : 'have'}`} no place: ${entry.text}` }] : [];
  });
  return [...fields, ...plan.actions.map(line_of), ...again, ...without];
}
