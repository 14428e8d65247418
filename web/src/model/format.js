// Numbers and times as text. What is not known is "unknown" or a dash, never zero.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** @type {(value: number | null | undefined) => string} */
export function bytes(value) {
  if (value === undefined || value === null) return 'unknown';
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value < 1000 ? 1 : 0)} ${units[unit]}`;
}

// "45.2 / 80.0 GiB": both in the unit of the second.
/** @type {(part: number | undefined, total: number | undefined) => string} */
export function bytes_of(part, total) {
  if (total === undefined) return 'unknown';
  const unit = Math.min(units.length - 1, total > 0 ? Math.floor(Math.log2(total) / 10) : 0);
  const text = (/** @type {number} */ value) => (value / 1024 ** unit).toFixed(unit === 0 ? 0 : 1);
  return `${part === undefined ? '?' : text(part)} / ${text(total)} ${units[unit]}`;
}

/** @type {(share: number | null | undefined) => string} */
export function percent(share) {
  return share === undefined || share === null ? '–' : `${Math.round(share * 100)} %`;
}

/** @type {(value: number | null | undefined) => string} */
export function celsius(value) {
  return value === undefined || value === null ? '–' : `${Math.round(value)} °C`;
}

/** @type {(value: number | null | undefined) => string} */
export function watts(value) {
  return value === undefined || value === null ? '–' : `${Math.round(value)} W`;
}

// Formats requests per second. One in a minute is not shown as 0.
/** @type {(value: number | null | undefined) => string} */
export function rate(value) {
  if (value === undefined || value === null) return '–';
  if (value > 0 && value < 0.1) return '< 0.1';
  return value === 0 ? '0' : value.toFixed(value < 99.95 ? 1 : 0);
}

// "1.33 ms", "104 ms", "12.1 s": three digits.
/** @type {(value: number | null | undefined) => string} */
export function seconds(value) {
  if (value === undefined || value === null) return '–';
  const [number, unit] = value < 0.9995 ? [1000 * value, 'ms'] : [value, 's'];
  return `${number.toFixed(number < 9.995 ? 2 : number < 99.95 ? 1 : 0)} ${unit}`;
}

// "12 s", "4 min", "3 h", "5 d".
/** @type {(ms: number) => string} */
export function duration(ms) {
  const s = Math.max(0, ms / 1000);
  if (s < 99.5) return `${Math.round(s)} s`;
  if (s < 99.5 * 60) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

/** @type {(ms: number) => string} */
export function time_of_day(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}

/** @type {(ms: number) => string} */
export function date_and_time(ms) {
  return new Date(ms).toLocaleString([], { hour12: false });
}

// Ids of devices are long; their beginning tells them apart, and the whole is in the title and in the panel.
/** @type {(id: string) => string} */
export function short_id(id) {
  return /^(GPU|MIG)-[0-9a-f]{8}-/i.test(id) ? id.slice(0, 12) : id.length > 24 ? `${id.slice(0, 23)}…` : id;
}

// A text of the server with its ids of devices shortened. The title and the panel show the whole id.
/** @type {(text: string | undefined) => string} */
export function brief(text) {
  return (text ?? '').replace(/\b((?:GPU|MIG)-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, '$1');
}

// A host and a port as an address has them.
/** @type {(host: string, port: number) => string} */
export function host_port(host, port) {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** @type {(n: number, singular: string, plural?: string) => string} */
export function count(n, singular, plural = `${singular}s`) {
  return `${n} ${n === 1 ? singular : plural}`;
}
