// What a deployment asks for, as rows of a name and a text: "readiness: http /, every 0.5 s".
import { bytes } from './format.js';
import { words } from './states.js';

// Shown elsewhere in the panel.
const hidden = ['name', 'replicas', 'command'];

/** @type {(key: string) => string} */
function name_of(key) {
  return words(key.replace(/_(bytes|s)$/, ''));
}

/** @type {(key: string, value: any) => string} */
function text_of(key, value) {
  if (/_bytes$/.test(key)) return bytes(value);
  if (/_s$/.test(key)) return `${Number(value.toFixed(3))} s`;
  if (Array.isArray(value)) return value.join(' ');
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return String(value);
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
      const part = (/** @type {[string, any]} */ [name, one]) => (of_people.includes(key) ? `${name}=${one}` : one === true ? name_of(name) : `${name_of(name)} ${text_of(name, one)}`);
      return [name_of(key), Object.entries(value).map(part).join(', ')];
    });
}
