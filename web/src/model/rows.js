// Answers that the views can rely on: invalid rows are left out, so that one bad row of one node does not blank the
// page. The server checks what nodes report; this protects against a server that does not.

const is_object = (/** @type {any} */ value) => typeof value === 'object' && value !== null && !Array.isArray(value);
/** @type {(value: any, is_valid: (row: any) => unknown) => any[]} */
const list = (value, is_valid) => (Array.isArray(value) ? value.filter(is_valid) : []);

/** @param {any} rows */
function devices_of(rows) {
  const known = new Set();
  return list(rows, (row) => is_object(row) && typeof row.id === 'string' && !known.has(row.id) && known.add(row.id)).map((row) =>
    row.holders === undefined ? row : { ...row, holders: list(row.holders, (holder) => is_object(holder) && typeof holder.name === 'string') },
  );
}

// What a node measured before it was lost says nothing about now.
const measured = [
  'sample_age_ms', 'memory_bytes_free', 'memory_bytes_own', 'memory_bytes_berth', 'memory_bytes_foreign', 'memory_bytes_unattributed', 'utilization',
  'memory_utilization', 'active_streams', 'queue_depth', 'power_watts', 'temperature_celsius', 'memory_temperature_celsius', 'clock_mhz', 'memory_clock_mhz',
  'throttle_reasons', 'recovery_action', 'advice', 'processes', 'error',
];
/** @param {any} device */
function last_seen(device) {
  const known = { ...device, health: 'unknown' };
  for (const key of measured) delete known[key];
  if (known.holders) known.holders = known.holders.filter((/** @type {any} */ holder) => holder.kind !== 'foreign');
  return known;
}

/** @param {any} node */
function node_of(node) {
  const devices = devices_of(node.devices);
  return { ...node, devices: node.health === 'lost' ? devices.map(last_seen) : devices };
}

/** @type {(answer: any) => any} */
export function valid_rows(answer) {
  if (!is_object(answer)) return answer;
  const valid = { ...answer };
  if (Array.isArray(answer.nodes)) valid.nodes = list(answer.nodes, (node) => is_object(node) && typeof node.name === 'string').map(node_of);
  if (is_object(answer.node)) valid.node = node_of(answer.node);
  if (answer.jobs)
    valid.jobs = list(answer.jobs, (job) => is_object(job) && typeof job.name === 'string' && typeof job.node === 'string').map((job) => ({
      ...job,
      devices: list(job.devices, (id) => typeof id === 'string'),
    }));
  return valid;
}
