// The text filter: all words must occur somewhere in what describes the thing, in any case of letters.
import { intent_of, intent_text, is_out, words } from './states.js';
import { endpoint_state } from './traffic.js';

const texts = new WeakMap();

// Described once for each object; a changed thing is another object (live/reconcile.js).
/**
 * @template {object} T
 * @param {T} object
 * @param {(object: T) => (string | number | undefined)[]} describe
 * @returns {string}
 */
function text_of(object, describe) {
  let text = texts.get(object);
  if (text === undefined) texts.set(object, (text = describe(object).join(' ').toLowerCase()));
  return text;
}

/** @param {string} filter */
export function matcher(filter) {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return {
    all: wanted.length === 0,
    /**
     * @template {object} T
     * @param {T} object
     * @param {(object: T) => (string | number | undefined)[]} describe
     * @param {string} [more] what else may match
     */
    matches: (object, describe, more = '') => {
      if (wanted.length === 0) return true;
      const text = text_of(object, describe);
      return wanted.every((word) => text.includes(word) || more.includes(word));
    },
  };
}

/** @type {(of: Record<string, string> | undefined) => string[]} */
function labels(of) {
  return Object.entries(of ?? {}).map(([key, value]) => `${key}=${value}`);
}

// What the summary links to, and the words that the page shows.
/** @type {(of: import('../live/answers').Node | import('../live/answers').Device) => string} */
const intent_words = (of) => (is_out(of) ? `out of service ${intent_of(of)} ${intent_text(of)}` : '');

/** @type {(one: import('../live/answers').Node) => (string | number | undefined)[]} */
export const describe_node = (node) => [
  node.name, node.health, intent_words(node), node.version, node.egress ? 'egress' : '',
  ...labels(node.labels), ...(node.taints ?? []),
];
/** @type {(one: import('../live/answers').Device) => (string | number | undefined)[]} */
export const describe_device = (device) => [
  device.id, device.name, device.backend, `${device.backend}:${device.ordinal ?? ''}`, device.health, intent_words(device),
  ...labels(device.labels), ...(device.holders ?? []).flatMap((holder) => [holder.kind, holder.name, holder.user ?? '']),
];
/** @type {(one: import('../live/answers').Deployment) => (string | number | undefined)[]} */
export const describe_deployment = (one) => [one.name, words(one.state), one.reason ?? '', one.spec?.model ?? '', one.spec?.runtime ?? ''];
/** @type {(one: Partial<Omit<import('../live/answers').Replica, 'state'>> & { name: string, state: string }) => (string | undefined)[]} */
export const describe_replica = (one) => [one.name, words(one.state), one.node ?? '', one.reason ?? '', ...(one.devices ?? [])];
/** @type {(one: import('../live/answers').Job) => (string | number | undefined)[]} */
export const describe_job = (one) => [one.kind, one.name, one.id ?? '', one.user ?? '', one.node, one.state, one.command ?? '', ...(one.devices ?? [])];
/** @type {(one: import('../live/answers').ServedDeployment) => (string | number | undefined)[]} */
export const describe_served = (one) => [one.name, one.model ?? '', one.serving?.host ?? '', one.serving?.path ?? ''];
/** @type {(one: import('../live/answers').Endpoint) => (string | number | undefined)[]} */
export const describe_endpoint = (one) => [one.name, one.node, words(endpoint_state(one)), ...(one.devices ?? [])];
/** @type {(one: import('../live/answers').Endpoints['callers'][number]) => (string | undefined)[]} */
export const describe_caller = (one) => [one.id, one.name ?? '', one.deployment ?? ''];
/** @type {(one: import('../live/answers').Event) => (string | number | undefined)[]} */
export const describe_event = (one) => [one.kind, one.actor, one.subject ?? '', one.text];
/** @type {(one: import('../live/answers').Pending) => (string | undefined)[]} */
export const describe_pending = (one) => [one.deployment, words(one.reason?.kind ?? ''), one.reason?.text ?? '', one.reason?.best_node ?? ''];
