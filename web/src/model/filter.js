// The text filter: all words must occur somewhere in what describes the thing, in any case of letters.
import { endpoint_state } from './traffic.js';

const texts = new WeakMap();

// Described once for each object; a changed thing is another object (live/reconcile.js).
function text_of(object, describe) {
  let text = texts.get(object);
  if (text === undefined) texts.set(object, (text = describe(object).join(' ').toLowerCase()));
  return text;
}

export function matcher(filter) {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return {
    all: wanted.length === 0,
    matches: (object, describe, more = '') => {
      if (wanted.length === 0) return true;
      const text = text_of(object, describe);
      return wanted.every((word) => text.includes(word) || more.includes(word));
    },
  };
}

function labels(of) {
  return Object.entries(of ?? {}).map(([key, value]) => `${key}=${value}`);
}

export const describe_node = (node) => [
  node.name, node.health, node.intent === 'in_service' ? '' : node.intent, node.version, node.egress ? 'egress' : '',
  ...labels(node.labels), ...(node.taints ?? []),
];
export const describe_device = (device) => [
  device.id, device.name, device.backend, `${device.backend}:${device.ordinal ?? ''}`, device.health, device.intent === 'in_service' ? '' : device.intent,
  ...labels(device.labels), ...(device.holders ?? []).flatMap((holder) => [holder.kind, holder.name, holder.user ?? '']),
];
export const describe_deployment = (one) => [one.name, one.state, one.reason ?? '', one.spec?.model ?? '', one.spec?.runtime ?? ''];
export const describe_replica = (one) => [one.name, one.state, one.node ?? '', one.reason ?? '', ...(one.devices ?? [])];
export const describe_job = (one) => [one.kind, one.name, one.id ?? '', one.user ?? '', one.node, one.state, one.command ?? '', ...(one.devices ?? [])];
export const describe_served = (one) => [one.name, one.model ?? '', one.serving?.host ?? '', one.serving?.path ?? ''];
export const describe_endpoint = (one) => [one.name, one.node, endpoint_state(one), ...(one.devices ?? [])];
export const describe_caller = (one) => [one.id, one.name ?? '', one.deployment ?? ''];
export const describe_event = (one) => [one.kind, one.actor, one.subject ?? '', one.text];
export const describe_pending = (one) => [one.deployment, one.reason?.kind ?? '', one.reason?.text ?? '', one.reason?.best_node ?? ''];
