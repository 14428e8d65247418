// Answers that the views can rely on: invalid rows are left out, so that one bad row of one node does not blank the
// page. The server checks what nodes report; this protects against a server that does not.

const is_object = (/** @type {any} */ value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const list = (/** @type {any} */ value, /** @type {(one: any) => unknown} */ is_valid) => (Array.isArray(value) ? value.filter(is_valid) : []);

/** @param {any} rows */
function devices_of(rows) {
  const known = new Set();
  return list(rows, (row) => is_object(row) && typeof row.id === 'string' && !known.has(row.id) && known.add(row.id)).map((row) =>
    row.holders === undefined ? row : { ...row, holders: list(row.holders, (holder) => is_object(holder) && typeof holder.name === 'string') },
  );
}

const node_of = (/** @type {any} */ node) => ({ ...node, devices: devices_of(node.devices) });

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
