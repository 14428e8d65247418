// Every state word of the API has a shape and a colour. The shape alone says how bad it is.
//   ok dot, capped dot under a line, busy half dot, warn triangle, bad cross, off ring, paused bars
/** @type {Record<string, string>} */
const kinds = {
  healthy: 'ok', ready: 'ok', serving: 'ok', running: 'ok', in_service: 'ok',
  starting: 'busy', updating: 'busy', stopping: 'busy', waiting: 'busy', probation: 'busy', draining: 'busy',
  suspect: 'warn', degraded: 'warn', unready: 'warn', backing_off: 'warn', pending: 'warn',
  lost: 'bad', failed: 'bad', quarantined: 'bad', refused: 'bad', ejected: 'bad',
  paused: 'paused', cordoned: 'paused',
  gone: 'off', ended: 'off',
};

/** @type {(state: string | undefined) => string} */
export function kind_of(state) {
  return kinds[state ?? ''] ?? 'off';
}

/** @type {(state: string | undefined) => string} */
export function words(state) {
  return state === undefined ? 'unknown' : state.replaceAll('_', ' ').replace(/\bgpu/g, 'GPU');
}

// Of an event.
/** @type {Record<string, string>} */
const event_kinds = {
  ready: 'ok', failed: 'bad', refused: 'warn', pending: 'warn', device: 'warn', rollout: 'busy', assigned: 'busy', moved: 'busy', intent: 'paused',
};

/** @type {(kind: string) => string} */
export function event_kind_of(kind) {
  return event_kinds[kind] ?? 'off';
}

// A device takes new work: the shape of a device shows the first thing that keeps it from that.
/** @typedef {import('../live/answers').Device} Device @typedef {{ health: string, intent?: string }} SomeNode */
/** @type {(device: Device, node: SomeNode) => string} */
export function device_state(device, node) {
  if (node.health === 'lost') return 'lost';
  if (device.health !== undefined && device.health !== 'healthy') return device.health;
  if (node.intent && node.intent !== 'in_service') return node.intent;
  if (device.intent && device.intent !== 'in_service') return device.intent;
  return device.health ?? 'unknown';
}

// From here on a GPU is hot: most slow down a few degrees later.
export const hot_celsius = 80;

// What slows a device down against its will, in the words of the API, and what the page calls it.
/** @type {Record<string, string>} */
const slowed = { 'hardware slowdown': 'slowed down by the hardware', temperature: 'slowed down by heat', 'temperature, by the hardware': 'slowed down by heat', 'power brake': 'slowed down by the power supply' };

/** @type {(device: Device) => boolean} */
export const needs_recovery = (device) => !!device.recovery_action && device.recovery_action !== 'none';

// What is worth a look at a device although it is healthy, the worst first: [{ kind, text }].
/** @type {(device: Device) => { kind: string, text: string }[]} */
export function concerns_of(device) {
  const reasons = device.throttle_reasons ?? [];
  const found = [...new Set(reasons.map((reason) => slowed[reason]).filter(Boolean))].map((text) => ({ kind: 'warn', text }));
  if ((device.temperature_celsius ?? 0) >= hot_celsius) found.push({ kind: 'warn', text: 'hot' });
  if (needs_recovery(device)) found.push({ kind: 'warn', text: `needs ${words(device.recovery_action)}` });
  if (device.ecc_uncorrected) found.push({ kind: 'warn', text: 'memory errors' });
  if (reasons.includes('power cap')) found.push({ kind: 'capped', text: 'power-capped' });
  return found;
}

// The shape of a device: that of its state, or of the worst concern about a device that is well.
/** @type {(device: Device, node: SomeNode) => string} */
export function device_kind(device, node) {
  const kind = kind_of(device_state(device, node));
  return kind === 'ok' ? (concerns_of(device)[0]?.kind ?? kind) : kind;
}

// Problems come first; what else is equal keeps its order.
/** @type {Record<string, number>} */
const order = { bad: 0, warn: 1 };
/**
 * @template T
 * @param {T[]} list
 * @param {(one: T) => string} kind
 */
export function problems_first(list, kind) {
  const rank = (/** @type {T} */ one) => order[kind(one)] ?? 2;
  return [...list].sort((a, b) => rank(a) - rank(b));
}

// Of a node with its devices: a lost node is worse than a lost GPU. Not of heat and load, which change all the time and would make the
// list restless.
/** @type {(node: import('../live/answers').Node) => string} */
export function node_kind(node) {
  const own = kind_of(node_state(node));
  if (own === 'bad') return own;
  return node.problem || node.devices.some((device) => ['bad', 'warn'].includes(kind_of(device.health))) ? 'warn' : own;
}

/** @type {(node: SomeNode) => string} */
export function node_state(node) {
  if (node.health !== 'healthy') return node.health;
  return node.intent && node.intent !== 'in_service' ? node.intent : node.health;
}
