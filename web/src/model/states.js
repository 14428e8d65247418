// Every state word of the API has a shape and a colour. The shape alone says how bad it is.
//   ok dot, busy half dot, warn triangle, bad cross, off ring, paused bars
const kinds = {
  healthy: 'ok', ready: 'ok', serving: 'ok', running: 'ok', in_service: 'ok',
  starting: 'busy', updating: 'busy', stopping: 'busy', waiting: 'busy', probation: 'busy', draining: 'busy',
  suspect: 'warn', degraded: 'warn', unready: 'warn', backing_off: 'warn', pending: 'warn',
  lost: 'bad', failed: 'bad', quarantined: 'bad', refused: 'bad', ejected: 'bad',
  paused: 'paused', cordoned: 'paused',
  gone: 'off', ended: 'off',
};

export function kind_of(state) {
  return kinds[state] ?? 'off';
}

export function words(state) {
  return state === undefined ? 'unknown' : state.replaceAll('_', ' ').replace(/\bgpu/g, 'GPU');
}

// Of an event.
const event_kinds = {
  ready: 'ok', failed: 'bad', refused: 'warn', pending: 'warn', device: 'warn', rollout: 'busy', assigned: 'busy', moved: 'busy', intent: 'paused',
};

export function event_kind_of(kind) {
  return event_kinds[kind] ?? 'off';
}

// A device takes new work: the shape of a device shows the first thing that keeps it from that.
export function device_state(device, node) {
  if (node.health === 'lost') return 'lost';
  if (device.health !== undefined && device.health !== 'healthy') return device.health;
  if (node.intent && node.intent !== 'in_service') return node.intent;
  if (device.intent && device.intent !== 'in_service') return device.intent;
  return device.health;
}

export function node_state(node) {
  if (node.health !== 'healthy') return node.health;
  return node.intent && node.intent !== 'in_service' ? node.intent : node.health;
}
