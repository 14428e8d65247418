// Keeps what the page shows equal to what the server knows.
//
// The server's stream says only that something changed; then everything on screen is fetched again, so a message that got lost does
// no harm. A stream that breaks, or an answer that does not come, is a lost connection: the page keeps the last state, says how
// old it is, and tries again with growing pauses. On return the stream is opened first and the state fetched after that, so
// that no change falls between the two.
import { untrack } from 'svelte';
import { ApiError, request } from './api.js';
import { valid_rows } from '../model/rows.js';
import { reconcile } from './reconcile.js';

// Load and temperature change without a change of the fleet's state, so the page also looks on its own; more often at requests, which
// gateways report once a second.
const poll_ms = 5000;
const poll_requests_ms = 2000;
const pause_min_ms = 1000;
const pause_max_ms = 15_000;

export const live = $state({
  phase: 'connecting', // connecting, live, lost, login
  loaded_at: 0, // when the state on screen was complete and right, by this browser's clock
  retry_at: 0,
  problem: '',
  // How far the server's clock is ahead of this browser's.
  offset_ms: 0,
});

// Once a second; what shows an age reads it.
export const clock = $state({ now: Date.now() });

// One path of the API with its newest answer.
class Resource {
  value = $state.raw(undefined);
  problem = $state.raw(undefined);
  watchers = 0;
  constructor(path) {
    this.path = path;
  }
  async load() {
    try {
      const answer = await request(this.path);
      const received_ms = Date.now();
      if (answer.now_at_ms !== undefined) {
        const offset_ms = answer.now_at_ms - received_ms;
        if (Math.abs(offset_ms - live.offset_ms) > 1000) live.offset_ms = offset_ms;
        delete answer.now_at_ms;
      }
      delete answer.revision;
      this.value = reconcile(this.value, valid_rows(answer), received_ms);
      this.problem = undefined;
    } catch (error) {
      // It is about this one thing: not there, or not for this reader. Everything else concerns the connection.
      if (!(error instanceof ApiError) || ![400, 403, 404].includes(error.status)) throw error;
      this.problem = error;
    }
  }
}

const resources = new Map();
export const status = resource('status');
status.watchers = 1;

function resource(path) {
  let found = resources.get(path);
  if (!found) resources.set(path, (found = new Resource(path)));
  return found;
}

// For use in a component: the newest answer to the path that `path_of` gives, kept up to date while the component is shown.
export function watch(path_of) {
  const current = $derived(resource(path_of()));
  $effect(() => {
    const watched = current;
    watched.watchers += 1;
    untrack(() => {
      if (live.phase === 'live') watched.load().catch(failed);
    });
    return () => {
      watched.watchers -= 1;
      // Lists stay, so that going back shows something at once; single things go.
      if (watched.watchers === 0 && watched.path.includes('/')) resources.delete(watched.path);
    };
  });
  return {
    get value() {
      return current.value;
    },
    get problem() {
      return current.problem;
    },
  };
}

// How long what is on screen may stay without a look.
function poll_due_ms() {
  return resources.get('endpoints')?.watchers > 0 ? poll_requests_ms : poll_ms;
}

let stream;
let attempt = 0; // tells a late answer of an earlier connection from the current one
let failures = 0;
let retry_timer;
let refresh_timer;
let refreshing = false;
let refreshed_at = 0;
let refresh_took_ms = 0;
let server_version;

// At most one refresh at a time and a pause between two of them that grows with their cost, so that a large fleet
// with a change every moment leaves the browser most of its time.
function soon() {
  if (refresh_timer || document.hidden) return;
  const pause_ms = Math.min(poll_ms, Math.max(250, 4 * refresh_took_ms));
  refresh_timer = setTimeout(refresh, Math.max(0, refreshed_at + pause_ms - Date.now()));
}

async function refresh() {
  clearTimeout(refresh_timer);
  refresh_timer = undefined;
  if (refreshing) return soon();
  refreshing = true;
  const mine = attempt;
  const begin_ms = Date.now();
  try {
    await Promise.all([...resources.values()].filter((one) => one.watchers > 0).map((one) => one.load()));
    if (mine !== attempt) return;
    const version = status.value?.version;
    // The server was replaced by another version, and this page is of the one before.
    if (server_version !== undefined && version !== server_version) location.reload();
    server_version = version;
    failures = 0;
    live.phase = 'live';
    live.problem = '';
    live.loaded_at = Date.now();
  } catch (error) {
    if (mine === attempt) failed(error);
  } finally {
    refreshing = false;
    refreshed_at = Date.now();
    refresh_took_ms = refreshed_at - begin_ms;
  }
}

export function connect() {
  attempt += 1;
  const mine = attempt;
  clearTimeout(retry_timer);
  stream?.close();
  stream = new EventSource('api/v1/stream');
  stream.onopen = () => mine === attempt && refresh();
  stream.addEventListener('change', () => mine === attempt && soon());
  stream.onerror = async () => {
    if (mine !== attempt) return;
    // The browser does not say why. An ordinary request does: not logged in, or not there.
    stream.close();
    try {
      await status.load();
      if (mine === attempt) failed(new ApiError(0, 'the stream of changes ended'));
    } catch (error) {
      if (mine === attempt) failed(error);
    }
  };
}

function failed(error) {
  attempt += 1;
  stream?.close();
  clearTimeout(retry_timer);
  if (error.status === 401) {
    live.phase = 'login';
    return;
  }
  if (!(error instanceof ApiError)) console.error(error);
  live.phase = 'lost';
  live.problem = error.message;
  // Some randomness, so that many pages do not come back at the same moment.
  const pause_ms = Math.min(pause_max_ms, pause_min_ms * 2 ** failures) * (0.75 + Math.random() / 2);
  failures += 1;
  live.retry_at = Date.now() + pause_ms;
  retry_timer = setTimeout(connect, pause_ms);
}

export async function login(token) {
  await request('login', { method: 'POST', body: { token } });
  live.phase = 'connecting';
  connect();
}

export function start() {
  connect();
  setInterval(() => {
    clock.now = Date.now();
    if (live.phase === 'live' && clock.now - refreshed_at >= poll_due_ms() - 500) soon();
  }, 1000);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) return;
    clock.now = Date.now();
    if (live.phase === 'lost') connect();
    else if (live.phase !== 'login') soon();
  });
}
