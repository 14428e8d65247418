// What a deployment asks for, as rows of a name and a text: "readiness: http /, every 0.5 s".
import { bytes } from './format.js';
import { words } from './states.js';

// Shown elsewhere in the panel.
const hidden = ['name', 'replicas', 'command'];

// Where the name in a project file does not say enough.
/** @type {Record<string, string>} */
const names = {
  cpu: 'runs without a GPU', cpus: 'CPUs', exclusive: 'exclusive GPUs', ready_within_s: 'time to become ready', unready_within_s: 'restart when not ready for',
  stop_grace_s: 'time to stop', stop_after_s: 'stop when cut off for', replace_after_s: 'replace when its node is silent for',
};

/** @type {(key: string) => string} */
export function name_of(key) {
  return names[key] ?? words(key.replace(/_(bytes|s)$/, ''));
}

// Values of these are words of Berth.
const of_berth = ['spread', 'priority', 'on_shortage', 'on_capacity_exhausted', 'affinity', 'reach'];

/** @type {(key: string, value: any) => string} */
function text_of(key, value) {
  if (/_bytes$/.test(key)) return bytes(value);
  if (/_s$/.test(key)) return `${Number(value.toFixed(3))} s`;
  if (Array.isArray(value)) return value.join(' ');
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return of_berth.includes(key) ? words(value) : String(value);
}

// Keys of these are names that people gave, not words of Berth.
const of_people = ['node_selector', 'device_labels', 'environment', 'secrets'];

/** @type {(spec: import('../live/answers').Spec | undefined) => [name: string, text: string][]} */
export function rows_of(spec) {
  return Object.entries(spec ?? {})
    .filter(([key]) => !hidden.includes(key))
    .map(([key, value]) => {
      const is_group = typeof value === 'object' && !Array.isArray(value);
      if (!is_group) return [name_of(key), text_of(key, value)];
      const part = (/** @type {[string, any]} */ [name, item]) => (of_people.includes(key) ? `${name}=${item}` : item === true ? name_of(name) : `${name_of(name)} ${text_of(name, item)}`);
      return [name_of(key), Object.entries(value).map(part).join(', ')];
    });
}
