// Every state word of the API has a shape and a colour. The shape alone says how bad it is.
//   ok dot, capped dot under a line, busy half dot, warn triangle, bad cross, off ring, paused bars, drained square, unknown dashed ring
/** @type {Record<string, string>} */
const kinds = {
  healthy: 'ok', ready: 'ok', serving: 'ok', running: 'ok', in_service: 'ok',
  starting: 'busy', updating: 'busy', stopping: 'busy', waiting: 'busy', probation: 'busy', draining: 'busy',
  suspect: 'warn', degraded: 'warn', unready: 'warn', backing_off: 'warn', pending: 'warn',
  lost: 'bad', failed: 'bad', quarantined: 'bad', refused: 'bad', ejected: 'bad',
  paused: 'paused', cordoned: 'paused',
  drained: 'drained', unknown: 'unknown',
  gone: 'off', ended: 'off',
};

/** @type {(state: string | undefined) => string} */
export function kind_of(state) {
  return kinds[state ?? 'unknown'] ?? 'off';
}

/** @type {(state: string | undefined) => string} */
export function words(state) {
  if (state === undefined) return 'unknown';
  if (state === 'backing_off') return 'waiting to restart';
  return state === 'unready' ? 'not ready' : state.replaceAll('_', ' ').replace(/\bgpu/g, 'GPU');
}

// The kinds of events.
/** @type {Record<string, string>} */
const event_kinds = {
  ready: 'ok', failed: 'bad', refused: 'warn', pending: 'warn', device: 'warn', rollout: 'busy', assigned: 'busy', moved: 'busy', intent: 'paused',
};

// An event about a node or a device says in its text how bad it is.
/** @type {(event: { kind: string, text: string }) => string} */
export function event_kind_of({ kind, text }) {
  if (kind === 'node' || kind === 'device') {
    if (/\bis lost\b/.test(text)) return 'bad';
    if (/\bis suspect\b/.test(text)) return 'warn';
  }
  return event_kinds[kind] ?? 'off';
}

// What an operator has set for a node or a device.
/** @typedef {{ intent?: string, intent_by?: string, intent_reason?: string, replicas?: { state: string }[], holders?: { kind: string }[] }} Serving */
/** @type {(of: Serving) => boolean} */
export const is_out = (of) => (of.intent ?? 'in_service') !== 'in_service';

/** @type {(of: Serving) => boolean} */
function holds_replicas({ holders, replicas }) {
  if (holders) return holders.some((holder) => holder.kind === 'replica');
  return replicas?.some((replica) => replica.state !== 'gone') ?? true;
}

// A drain is over when no replica is left.
/** @type {(of: Serving) => string} */
export function intent_of(of) {
  return of.intent === 'draining' && !holds_replicas(of) ? 'drained' : (of.intent ?? 'in_service');
}

// "cordoned by ann: its fan is loud"; empty: in service.
/** @type {(of: Serving) => string} */
export function intent_text(of) {
  if (!is_out(of)) return '';
  const intent = intent_of(of);
  const by = of.intent_by ? ` by ${of.intent_by.replace(/^user:/, '')}` : '';
  return `${intent === 'draining' ? 'being drained' : words(intent)}${by}${of.intent_reason ? `: ${of.intent_reason}` : ''}`;
}

// A device takes new work: the shape of a device shows the first thing that keeps it from that.
/** @typedef {import('../live/answers').Device} Device @typedef {Serving & { health: string }} SomeNode */
/** @type {(device: Device, node: SomeNode) => string} */
export function device_state(device, node) {
  if (device.health !== undefined && device.health !== 'healthy') return device.health;
  if (is_out(node)) return intent_of({ intent: node.intent, holders: device.holders });
  return is_out(device) ? intent_of(device) : (device.health ?? 'unknown');
}

// From here on a GPU is hot: most slow down a few degrees later.
export const hot_celsius = 80;

// What slows a device down against its will, in the words of the API, and what the page calls it.
/** @type {Record<string, string>} */
const slowed = { 'hardware slowdown': 'slowed down by the hardware', temperature: 'slowed down by heat', 'temperature, by the hardware': 'slowed down by heat', 'power brake': 'slowed down by the power supply' };

/** @type {(device: Device) => boolean} */
export const needs_recovery = (device) => !!device.recovery_action && device.recovery_action !== 'none';

// One of a lost node (model/rows.js).
/** @type {(device: { health?: string }) => boolean} */
export const device_is_unknown = (device) => device.health === 'unknown';

// What is worth a look at a device although it is healthy, the worst first: [{ kind, text }].
/** @type {(device: Device) => { kind: string, text: string }[]} */
export function concerns_of(device) {
  if (device_is_unknown(device)) return [];
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
 * @param {(item: T) => string} kind
 */
export function problems_first(list, kind) {
  const rank = (/** @type {T} */ item) => order[kind(item)] ?? 2;
  return [...list].sort((a, b) => rank(a) - rank(b));
}

// Covers a node and its devices; a lost node is worse than a lost GPU. Ignores heat and load, which change all the time and would make
// the list restless.
/** @type {(node: import('../live/answers').Node) => string} */
export function node_kind(node) {
  const own = kind_of(node_state(node));
  if (own === 'bad') return own;
  return node.problem || node.devices.some((device) => ['bad', 'warn'].includes(kind_of(device.health))) ? 'warn' : own;
}

/** @type {(node: SomeNode) => string} */
export function node_state(node) {
  if (node.health !== 'healthy') return node.health;
  return is_out(node) ? intent_of(node) : node.health;
}
