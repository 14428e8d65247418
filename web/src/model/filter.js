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

/** @type {(node: import('../live/answers').Node) => (string | number | undefined)[]} */
export const describe_node = (node) => [
  node.name, node.health, intent_words(node), node.version, node.egress ? 'egress' : '',
  ...labels(node.labels), ...(node.taints ?? []),
];
/** @type {(device: import('../live/answers').Device) => (string | number | undefined)[]} */
export const describe_device = (device) => [
  device.id, device.name, device.backend, `${device.backend}:${device.ordinal ?? ''}`, device.health, intent_words(device),
  ...labels(device.labels), ...(device.holders ?? []).flatMap((holder) => [holder.kind, holder.name, holder.user ?? '']),
];
/** @type {(deployment: import('../live/answers').Deployment) => (string | number | undefined)[]} */
export const describe_deployment = (deployment) => [deployment.name, words(deployment.state), deployment.reason ?? '', deployment.spec?.model ?? '', deployment.spec?.runtime ?? ''];
/** @type {(replica: Partial<Omit<import('../live/answers').Replica, 'state'>> & { name: string, state: string }) => (string | undefined)[]} */
export const describe_replica = (replica) => [replica.name, words(replica.state), replica.node ?? '', replica.reason ?? '', ...(replica.devices ?? [])];
/** @type {(job: import('../live/answers').Job) => (string | number | undefined)[]} */
export const describe_job = (job) => [job.kind, job.name, job.id ?? '', job.user ?? '', job.node, job.state, job.command ?? '', ...(job.devices ?? [])];
/** @type {(deployment: import('../live/answers').ServedDeployment) => (string | number | undefined)[]} */
export const describe_served = (deployment) => [deployment.name, deployment.model ?? '', deployment.serving?.host ?? '', deployment.serving?.path ?? ''];
/** @type {(endpoint: import('../live/answers').Endpoint) => (string | number | undefined)[]} */
export const describe_endpoint = (endpoint) => [endpoint.name, endpoint.node, words(endpoint_state(endpoint)), ...(endpoint.devices ?? [])];
/** @type {(caller: import('../live/answers').Endpoints['callers'][number]) => (string | undefined)[]} */
export const describe_caller = (caller) => [caller.id, caller.name ?? '', caller.deployment ?? ''];
/** @type {(event: import('../live/answers').Event) => (string | number | undefined)[]} */
export const describe_event = (event) => [event.kind, event.actor, event.subject ?? '', event.text];
/** @type {(pending: import('../live/answers').Pending) => (string | undefined)[]} */
export const describe_pending = (pending) => [pending.deployment, words(pending.reason?.kind ?? ''), pending.reason?.text ?? '', pending.reason?.best_node ?? ''];
