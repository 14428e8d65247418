// Turns an answer of the API into objects that can be compared with the ones of the answer before.
//
// An answer carries ages ("0.8 s ago"), which differ each time although nothing happened. They become moments on this browser's
// clock: `last_report_age_s` becomes `last_report_at`, `sample_age_ms` becomes `sample_at`. So an age continues to count while the
// connection is lost, and equal answers stay equal.
//
// What is equal keeps its identity, down to the smallest part. Svelte updates only what got a new identity: one changed device
// of 1,600 costs one row.

// Two moments that differ by less are the same: the way of an answer takes time.
const same_moment_ms = 2000;

const age_key = /^(?:(.*)_)?age_(m?s)$/;

/**
 * @param {any} old
 * @param {any} fresh
 * @param {number} received_ms
 * @returns {any} `fresh` with the parts of `old` that did not change; `old` itself where nothing did
 */
export function reconcile(old, fresh, received_ms) {
  if (Array.isArray(fresh)) return reconcile_array(old, fresh, received_ms);
  if (fresh === null || typeof fresh !== 'object') return fresh;
  const before = is_object(old) ? old : undefined;
  /** @type {Record<string, any>} */
  const result = {};
  let changed = before === undefined;
  let count = 0;
  for (let [key, value] of Object.entries(fresh)) {
    const age = age_key.exec(key);
    if (age && typeof value === 'number') {
      key = age[1] ? `${age[1]}_at` : 'at';
      value = received_ms - (age[2] === 's' ? value * 1000 : value);
      const earlier = before?.[key];
      if (typeof earlier === 'number' && Math.abs(earlier - value) < same_moment_ms) value = earlier;
    } else {
      value = reconcile(before?.[key], value, received_ms);
    }
    result[key] = value;
    count += 1;
    if (!changed && !Object.is(before[key], value)) changed = true;
  }
  return changed || Object.keys(before).length !== count ? result : before;
}

/** @type {(old: any, fresh: any[], received_ms: number) => any} */
function reconcile_array(old, fresh, received_ms) {
  const before = Array.isArray(old) ? old : [];
  const by_key = new Map();
  for (const item of before) {
    const key = key_of(item);
    if (key !== undefined) by_key.set(key, item);
  }
  const result = fresh.map((item, i) => {
    const key = key_of(item);
    return reconcile(key === undefined ? before[i] : by_key.get(key), item, received_ms);
  });
  const changed = !Array.isArray(old) || old.length !== result.length || result.some((item, i) => !Object.is(item, old[i]));
  return changed ? result : old;
}

// What tells the elements of a list apart, so that one more at the front does not change all the others.
/** @type {(item: any) => string | undefined} */
function key_of(item) {
  if (!is_object(item)) return undefined;
  if (item.generation !== undefined) return `${item.name}#${item.generation}`;
  const key = item.id ?? item.name ?? item.deployment;
  return key === undefined ? undefined : `${item.node ?? ''}/${item.kind ?? ''}/${key}`;
}

/** @param {unknown} value */
function is_object(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
