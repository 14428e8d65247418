// Where the reader is, as the part of the address after #: `#/fleet/gpu-1/GPU-ea3b?q=chat`. The first part is the view, the others name
// what is open beside it, `q` is the filter. An address can be kept and sent to others.

export const views = ['fleet', 'requests', 'deployments', 'replicas', 'jobs', 'pending', 'events'];

export const route = $state({ view: 'fleet', open: /** @type {string[]} */ ([]), filter: '' });

function read() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map(decode);
  route.view = views.includes(parts[0]) ? parts[0] : 'fleet';
  route.open = parts.slice(1);
  route.filter = new URLSearchParams(query).get('q') ?? '';
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// The address of something; keeps the filter while the view stays.
/** @type {(view: string, ...open: string[]) => string} */
export function link(view, ...open) {
  return address(view, open, view === route.view ? route.filter : '');
}

/** @type {(view: string, open: string[], filter: string) => string} */
export function address(view, open, filter) {
  const path = [view, ...open].map(encodeURIComponent).join('/');
  return `#/${path}${filter ? `?q=${encodeURIComponent(filter)}` : ''}`;
}

/** @param {string} text */
export function set_filter(text) {
  route.filter = text;
  history.replaceState(null, '', address(route.view, route.open, text));
}

// Closes what is open and gives the focus back to where it was opened.
export function close() {
  const opener = `a[href="${CSS.escape(link(route.view, ...route.open))}"]`;
  location.hash = link(route.view);
  requestAnimationFrame(() => /** @type {HTMLElement | null} */ (document.querySelector(opener))?.focus());
}

addEventListener('hashchange', read);
read();
