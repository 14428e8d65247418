// Keeps what the page shows equal to what the server knows.
//
// The server's stream says only that something changed; then everything on screen is fetched again, so a message that got lost does
// no harm. A stream that breaks, or an answer that does not come, is a lost connection: the page keeps the last state, says how
// old it is, and tries again with growing pauses. On return the stream is opened first and the state fetched after that, so
// that no change falls between the two.
import { untrack } from 'svelte';
import { ApiError, keep_session_secret, request, words_of } from './api.js';
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
  /** @type {any} */
  value = $state.raw(undefined);
  /** @type {ApiError | undefined} */
  problem = $state.raw(undefined);
  watchers = 0;
  /** @param {string} path */
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

/** @type {Map<string, Resource>} */
// eslint-disable-next-line svelte/prefer-svelte-reactivity -- what is shown is in the resources
const resources = new Map();
/** @type {Omit<Resource, 'value'> & { value: import('./answers').Status | undefined }} */
export const status = resource('status');
status.watchers = 1;
// Who is logged in, and what requests of this page may do. It changes with a login only.
/** @type {Omit<Resource, 'value'> & { value: import('./answers').AnswerOf<'session'> | undefined }} */
export const session = resource('session');

/** @param {string} path */
function resource(path) {
  let found = resources.get(path);
  if (!found) resources.set(path, (found = new Resource(path)));
  return found;
}

/**
 * For use in a component: the newest answer to the path that `path_of` gives, kept up to date while the component is shown.
 * @template {string} P
 * @param {() => P} path_of
 * @returns {import('./answers').Watched<import('./answers').AnswerOf<P>>}
 */
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
  return (resources.get('endpoints')?.watchers ?? 0) > 0 ? poll_requests_ms : poll_ms;
}

/** @type {EventSource | undefined} */
let stream;
let attempt = 0; // tells a late answer of an earlier connection from the current one
/** @type {number | undefined} */
let session_of; // the attempt that has asked who is logged in
let failures = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let retry_timer;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let refresh_timer;
let refreshing = false;
let refreshed_at = 0;
let refresh_took_ms = 0;
/** @type {string | undefined} */
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
    const due = [...resources.values()].filter((resource) => resource.watchers > 0 || (resource === session && session_of !== attempt));
    await Promise.all(due.map((resource) => resource.load()));
    if (mine !== attempt) return;
    session_of = mine;
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
    stream?.close();
    try {
      await status.load();
      if (mine === attempt) failed(new ApiError(0, 'the stream of changes ended'));
    } catch (error) {
      if (mine === attempt) failed(error);
    }
  };
}

/** @param {any} error */
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
  live.problem = words_of(error);
  // Some randomness, so that many pages do not come back at the same moment.
  const pause_ms = Math.min(pause_max_ms, pause_min_ms * 2 ** failures) * (0.75 + Math.random() / 2);
  failures += 1;
  live.retry_at = Date.now() + pause_ms;
  retry_timer = setTimeout(connect, pause_ms);
}

/** @param {string} token */
export async function login(token) {
  const { session_secret } = await request('login', { method: 'POST', body: { token } });
  keep_session_secret(session_secret);
  live.phase = 'connecting';
  connect();
}

// Ends the session at the server, and forgets what it has shown.
export async function logout() {
  await request('logout', { method: 'POST' }).catch((error) => {
    if (error.status !== 401) throw error; // the session has ended already
  });
  keep_session_secret(undefined);
  for (const resource of resources.values()) resource.value = undefined;
  failed(new ApiError(401, 'logged out'));
}

const roles = ['read', 'operate', 'deploy'];

/**
 * Whether requests of this page may do what needs this role.
 * @param {string} role
 */
export const may = (role) => roles.indexOf(session.value?.role ?? '') >= roles.indexOf(role);
/**
 * Whether the token of this session would allow it: the page lost the second secret when it was loaded again.
 * @param {string} role
 */
export const could = (role) => roles.indexOf(session.value?.token_role ?? '') >= roles.indexOf(role);

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
