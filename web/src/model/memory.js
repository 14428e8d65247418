// Who has the memory of a device, for the bar. The parts add up to the total.
//   replicas  promised to replicas of the fleet
//   jobs      promised to jobs and leases of people
//   foreign   used by processes that do not use Berth
//   other     in use, and the driver does not say by whom
//   unknown   whether it is in use is not known
//   free
export const parts = ['replicas', 'jobs', 'foreign', 'other', 'unknown', 'free'];

/** @type {Record<string, { short: string, long: string }>} */
export const part_names = {
  replicas: { short: 'replicas', long: 'promised to replicas' },
  jobs: { short: 'jobs and leases', long: 'promised to jobs and leases' },
  foreign: { short: 'other processes', long: 'used by processes outside Berth' },
  other: { short: 'owner unknown', long: 'in use, owner unknown' },
  unknown: { short: 'unknown', long: 'unknown whether in use' },
  free: { short: 'free', long: 'free' },
};

/** @typedef {Record<string, number> & { total: number, unknown: number, free: number, replicas: number, jobs: number, foreign: number, other: number }} Memory */

/**
 * @param {import('../live/answers').Device} device
 * @returns {Memory | undefined} bytes by part, or undefined where not even the size is known
 */
export function memory_of(device) {
  const total = device.memory_bytes_total;
  if (!total) return undefined;
  let replicas = 0;
  let jobs = 0;
  for (const holder of device.holders ?? []) {
    if (holder.kind === 'replica') replicas += holder.memory_bytes ?? 0;
    else if (holder.kind !== 'foreign') jobs += holder.memory_bytes ?? 0;
  }
  const foreign = device.memory_bytes_foreign ?? 0;
  let other = device.memory_bytes_unattributed ?? 0;
  const free_known = device.memory_bytes_free !== undefined;
  if (device.memory_bytes_free !== undefined) other += Math.max(0, total - device.memory_bytes_free - replicas - jobs - foreign - other);
  const rest = Math.max(0, total - replicas - jobs - foreign - other);
  return { total, replicas, jobs, foreign, other, unknown: free_known ? 0 : rest, free: free_known ? rest : 0 };
}

// `without` counts the devices of which nothing is known.
/** @param {import('../live/answers').Device[]} devices */
export function add_memory(devices) {
  /** @type {Memory & { without: number }} */
  const sum = { without: 0, total: 0, replicas: 0, jobs: 0, foreign: 0, other: 0, unknown: 0, free: 0 };
  for (const device of devices) {
    const memory = memory_of(device);
    if (!memory) sum.without += 1;
    else for (const part of ['total', ...parts]) sum[part] += memory[part];
  }
  return sum;
}

// Neither a processor nor a substitute for an accelerator: its memory is not the RAM of its node.
/** @type {(device: import('../live/answers').Device) => boolean} */
export const is_accelerator = (device) => device.backend !== 'host' && !device.is_fallback;

// What each kind of holder is called.
/** @type {Record<string, string>} */
export const holder_kinds = { replica: 'replica', job: 'job', lease: 'lease', foreign: 'other process' };
/** @type {(holder: { kind: string, name: string }) => string} */
export const holder_text = (holder) => `${holder_kinds[holder.kind] ?? holder.kind} ${holder.name}`;
